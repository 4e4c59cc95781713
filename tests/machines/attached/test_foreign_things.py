"""What is not the lab's stays as it is, and nothing of the lab's is lost sight of."""

import pytest
from api_double import served, write_kubeconfig

TEAM = "/api/v1/namespaces/team"


@pytest.fixture
def team(double):
    """A namespace of somebody's, with objects that have the names of a lab's."""
    double.add(TEAM)
    double.add(f"{TEAM}/serviceaccounts/default")
    for kind, name in (("services", "shared"), ("services", "to-plane-p1"), ("pods", "plane-p1")):
        double.add(f"{TEAM}/{kind}/{name}", app="theirs")
    return double


def theirs(double):
    return {path: item["metadata"]["uid"] for path, item in double.objects.items()
            if item.get("metadata", {}).get("labels") == {"app": "theirs"}}  # fmt: skip


# SECURITY.md: Only the lab's own objects are replaced or removed.
def test_objects_of_the_same_names_stay_in_a_namespace_of_others(team, lab, kubeconfig):
    before = theirs(team)
    assert len(before) == 3
    code, _, err = lab("attach", "prod", "--kubeconfig", kubeconfig, "--namespace", "team")
    assert code == 0, err
    assert theirs(team) == before
    assert "team/pods/prod-plane-p1" in team.names("pods")
    assert lab("detach", "prod")[0] == 0
    assert theirs(team) == before
    assert team.names("pods") | team.names("services") == {
        path.removeprefix("/api/v1/namespaces/") for path in before
    }


def test_two_labs_in_one_namespace_do_not_touch_each_other(team, lab, kubeconfig):
    where = ("--kubeconfig", kubeconfig, "--namespace", "team")
    for name in ("one", "two"):
        assert lab("attach", name, *where)[0] == 0
    assert lab("detach", "two")[0] == 0
    pods = {path for path in team.names("pods") if "-plane-" in path}
    assert pods == {"team/pods/one-plane-p1", "team/pods/one-plane-p2"}
    assert lab("detach", "one")[0] == 0


def test_an_object_of_the_very_same_name_is_named_and_stays(team, lab, kubeconfig):
    other = team.add(f"{TEAM}/pods/prod-plane-p1", **{"hybridlab.io/token": "another"})
    code, _, err = lab("attach", "prod", "--kubeconfig", kubeconfig, "--namespace", "team")
    assert code == 0, err
    assert "Pod prod-plane-p1: it exists and is not the lab's" in err
    team.add(f"{TEAM}/services/two-shared")
    code, _, err = lab("attach", "two", "--kubeconfig", kubeconfig, "--namespace", "team")
    assert code == 3
    assert "Service two-shared: it exists and is not the lab's" in err
    for name in ("prod", "two"):
        assert lab("detach", name)[0] == 0
    assert team.objects[f"{TEAM}/pods/prod-plane-p1"] is other
    assert f"{TEAM}/services/two-shared" in team.objects


def test_another_cluster_with_the_same_context_is_refused(double, lab, kubeconfig, tmp_path):
    assert lab("attach", "prod", "--kubeconfig", kubeconfig)[0] == 0
    with served() as other:
        second = write_kubeconfig(tmp_path / "b.conf", other.url)
        code, _, err = lab("attach", "prod", "--kubeconfig", second)
        assert code == 2
        assert "run 'lab detach prod' first" in err
        assert other.names("pods") == set()
    assert lab("detach", "prod")[0] == 0
    assert not any("hybridlab-" in path for path in double.objects)


@pytest.mark.parametrize("first", [(), ("--namespace", "team")])
def test_another_namespace_is_refused(team, lab, kubeconfig, first):
    second = () if first else ("--namespace", "team")
    assert lab("attach", "prod", "--kubeconfig", kubeconfig, *first)[0] == 0
    code, _, err = lab("attach", "prod", "--kubeconfig", kubeconfig, *second)
    assert code == 2
    assert "run 'lab detach prod' first" in err
    assert lab("detach", "prod")[0] == 0
    assert not any("prod" in path for path in team.objects)
    assert TEAM in team.objects


def test_attaching_again_on_the_same_terms_keeps_the_namespace(double, lab, kubeconfig):
    for more in ((), ("--rate", "50")):
        assert lab("attach", "prod", "--kubeconfig", kubeconfig, *more)[0] == 0
    spaces = {path for path in double.objects if path.count("/") == 4 and "hybridlab-" in path}
    assert len(spaces) == 1
    assert lab("detach", "prod")[0] == 0
    assert not any("hybridlab-" in path for path in double.objects)


def test_a_context_that_leads_elsewhere_by_now_is_not_touched(double, lab, kubeconfig):
    assert lab("attach", "prod", "--kubeconfig", kubeconfig)[0] == 0
    with served() as other:
        write_kubeconfig(kubeconfig, other.url)
        code, _, err = lab("detach", "prod")
        assert code == 2
        assert f"it leads to {other.url}, and the lab is on {double.url}" in err
        assert not any(method == "DELETE" for method, _ in other.asked)
    write_kubeconfig(kubeconfig, double.url)
    assert lab("detach", "prod")[0] == 0


def test_a_lab_without_pods_of_its_own_is_not_running(team, lab, kubeconfig):
    assert lab("attach", "prod", "--kubeconfig", kubeconfig, "--namespace", "team")[0] == 0
    for path in [path for path in team.objects if "/pods/prod-" in path]:
        del team.objects[path]
    out = lab("status", "prod")[1]
    assert "has no probe pods" in out
    assert lab("detach", "prod")[0] == 0


def test_detach_finds_the_cluster_without_the_lab_s_files(double, lab, kubeconfig, tmp_path):
    assert lab("attach", "prod", "--kubeconfig", kubeconfig)[0] == 0
    (record,) = tmp_path.glob("state/**/scenario.yaml")
    record.unlink()
    assert lab("detach", "prod")[0] == 0
    assert not any("hybridlab-" in path for path in double.objects)


def test_a_lab_whose_cluster_is_gone_can_be_forgotten(double, impatient, kubeconfig):
    assert impatient("attach", "prod", "--kubeconfig", kubeconfig)[0] == 0
    double.deaf = True
    assert impatient("detach", "prod")[0] == 3
    code, out, _ = impatient("detach", "prod", "--forget")
    assert code == 0
    remains = f"kubectl --kubeconfig={kubeconfig} --context=kubernetes-admin@kubernetes delete"
    assert f"{remains} namespace hybridlab-prod-" in out
    assert "no labs" in "".join(impatient("list")[1:])
