"""The commands of the containers of build pods that run our own image (BD-148, BD-178)."""
