"""ImageBuild and ImageBuildRun: types, schemas, and what their values mean."""
