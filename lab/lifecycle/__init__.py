"""Operations on labs, from up to down: the Python API behind the commands."""
