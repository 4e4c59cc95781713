import pytest
from lab_desk import Desk


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path)
    yield made
    made.store.close()
