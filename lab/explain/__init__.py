"""Why a cell does not do what it should: its path, compared with what is seen there."""
