"""Settings: their defaults, their bounds, and what cannot be together."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.broker.settings import NamespaceSettings, Settings, SettingsError
from twinbus.model.entity import QueueDescription


def named(*names: str) -> Settings:
    return Settings(namespaces=[NamespaceSettings(name=name) for name in names])


class TestDefaults:
    def test_without_arguments_a_broker_serves_this_machine_only(self) -> None:
        settings = Settings()
        settings.check()
        (namespace,) = settings.namespaces
        assert (namespace.name, settings.host) == ("twinbus", "127.0.0.1")
        assert (settings.amqp_port, settings.amqps_port) == (5672, 5671)
        assert (settings.http_port, settings.https_port) == (5300, 5301)
        assert settings.serves_plain
        assert not settings.serves_tls

    def test_data_is_kept_per_user_and_namespace(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        assert NamespaceSettings(name="east").data_directory == tmp_path / "twinbus" / "east"
        monkeypatch.delenv("XDG_DATA_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert NamespaceSettings().data_directory == tmp_path / ".local" / "share" / "twinbus" / "twinbus"

    def test_a_directory_that_is_given_is_taken(self, tmp_path: Path) -> None:
        assert NamespaceSettings(data=tmp_path).data_directory == tmp_path

    def test_the_key_is_not_in_the_representation(self) -> None:
        assert "very-secret" not in repr(Settings(namespaces=[NamespaceSettings(key="very-secret")]))


class TestSafety:
    @pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
    def test_plain_text_is_for_loopback(self, host: str) -> None:
        settings = Settings(host=host)
        settings.check()
        assert settings.serves_plain

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "bus.example"])
    def test_elsewhere_it_must_be_asked_for(self, host: str) -> None:
        with pytest.raises(SettingsError, match=r"not loopback.*--tls.*--allow-plain"):
            Settings(host=host).check()
        asked = Settings(host=host, allow_plain=True)
        asked.check()
        assert asked.serves_plain

    def test_with_a_certificate_only_the_encrypted_doors_are_open_to_others(self) -> None:
        settings = Settings(host="0.0.0.0", certificate=Path("host.pem"), certificate_key=Path("host.key"))
        settings.check()
        assert settings.serves_tls
        assert not settings.serves_plain

    @pytest.mark.parametrize("half", ["certificate", "certificate_key"])
    def test_a_certificate_and_its_key_come_together(self, half: str) -> None:
        with pytest.raises(SettingsError, match="A certificate needs its key"):
            Settings(**{half: Path("host.pem")}).check()


class TestBounds:
    @pytest.mark.parametrize("name", ["a", "twinbus", "East-2", "a" * 50])
    def test_a_namespace_name_is_accepted(self, name: str) -> None:
        named(name).check()

    @pytest.mark.parametrize(
        "name", ["", "2east", "-east", "east-", "ea st", "east.west", "../x", "a" * 51, "Localhost"]
    )
    def test_what_is_no_namespace_name_is_refused(self, name: str) -> None:
        with pytest.raises(SettingsError, match="is not a namespace name"):
            named(name).check()

    @pytest.mark.parametrize("stores", [None, 1, 4, 64])
    def test_a_namespace_has_one_to_64_stores(self, stores: int | None) -> None:
        NamespaceSettings(stores=stores).check()

    @pytest.mark.parametrize("stores", [-1, 0, 65])
    def test_another_number_of_stores_is_refused(self, stores: int) -> None:
        with pytest.raises(SettingsError, match=f"between 1 and 64, not {stores}"):
            NamespaceSettings(stores=stores).check()

    @pytest.mark.parametrize("length", [8, 256])
    def test_a_key_of_allowed_length(self, length: int) -> None:
        NamespaceSettings(key="k" * length).check()

    @pytest.mark.parametrize("length", [0, 7, 257])
    def test_a_key_too_short_or_too_long_is_refused_without_being_shown(self, length: int) -> None:
        with pytest.raises(SettingsError, match="8 to 256 characters") as refused:
            NamespaceSettings(key="k" * length).check()
        assert "kkk" not in str(refused.value)

    @pytest.mark.parametrize("name", ["n" * 101, "east\nwest"])
    def test_a_datacenter_has_a_printable_name(self, name: str) -> None:
        with pytest.raises(SettingsError, match="printable"):
            NamespaceSettings(datacenter=name).check()


class TestSeveralNamespaces:
    def test_two_of_one_name_are_refused_whatever_their_case(self) -> None:
        with pytest.raises(SettingsError, match="two namespaces with the name 'east'"):
            named("east", "East").check()

    def test_none_at_all_is_refused(self) -> None:
        with pytest.raises(SettingsError, match="no namespace to serve"):
            named().check()

    def test_each_name_gets_the_settings_of_the_one_that_the_file_has(self, tmp_path: Path) -> None:
        settings = Settings(
            namespaces=[NamespaceSettings(data=tmp_path, stores=2, queues=[QueueDescription(name="q")])]
        )
        settings.choose(["east", "west"])
        assert [(one.name, one.data, one.stores) for one in settings.namespaces] == [
            ("east", tmp_path / "east", 2),
            ("west", tmp_path / "west", 2),
        ]
        assert [[queue.name for queue in one.queues] for one in settings.namespaces] == [["q"], ["q"]]
        settings.namespaces[0].queues.append(QueueDescription(name="only here"))
        assert len(settings.namespaces[1].queues) == 1

    def test_out_of_several_in_a_file_the_named_ones_are_taken(self) -> None:
        settings = named("east", "west", "north")
        settings.choose(["North", "east"])
        assert [one.name for one in settings.namespaces] == ["north", "east"]
        with pytest.raises(SettingsError, match="no namespace 'south'"):
            settings.choose(["south"])

    def test_no_name_leaves_all(self) -> None:
        settings = named("east", "west")
        settings.choose([])
        assert [one.name for one in settings.namespaces] == ["east", "west"]

    def test_one_key_is_not_for_several(self) -> None:
        with pytest.raises(SettingsError, match="One key cannot be for several"):
            named("east", "west").apply(key="a-key-of-some-length")

    def test_what_is_given_for_all_replaces_what_each_had(self, tmp_path: Path) -> None:
        settings = named("east", "west")
        settings.namespaces[1].datacenter = "south"
        settings.apply(data=tmp_path, stores=3, datacenter="north", queues=["q"])
        assert [(one.data, one.stores, one.datacenter) for one in settings.namespaces] == [
            (tmp_path / "east", 3, "north"),
            (tmp_path / "west", 3, "north"),
        ]
        assert [[queue.name for queue in one.queues] for one in settings.namespaces] == [["q"], ["q"]]

    def test_two_in_one_directory_are_refused(self, tmp_path: Path) -> None:
        both = [NamespaceSettings(name=name, data=tmp_path) for name in ("east", "west")]
        with pytest.raises(SettingsError, match="'east' and 'west' have the same data directory"):
            Settings(namespaces=both).check()

    def test_two_in_one_database_are_refused_without_showing_its_address(self) -> None:
        both = [NamespaceSettings(name=name, store=["postgresql://u:secret@h/d"]) for name in ("east", "west")]
        with pytest.raises(SettingsError, match="have the same messaging store") as refused:
            Settings(namespaces=both).check()
        assert "secret" not in str(refused.value)
