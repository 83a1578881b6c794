"""Operations of repairs: required node affinity, replaced values, and text that several users share."""
