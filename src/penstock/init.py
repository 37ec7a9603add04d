"""Make a home with a settings file in which everything is explained and nothing is set."""

from pathlib import Path

from penstock.errors import Code, ExternalError, UserError
from penstock.setting_words import command_for, settings_file
from penstock.settings import FILE_NAME, home_folder


def make_home(given: Path | None) -> str:
    """Make the home and its settings file; answer what to say about it."""
    home = home_folder(given)
    path = home / FILE_NAME
    try:
        home.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(settings_file())
    except FileExistsError as error:
        raise _taken(home, path) from error
    except OSError as error:
        raise ExternalError(
            f'home "{home}" cannot be made: {error.strerror}',
            code=Code.STORAGE_ERR,
            hint="Choose another: penstock init FOLDER.",
        ) from error
    said = f"made {home} with {FILE_NAME}, in which every setting is explained"
    return f"{said}\n\n{steps(command_for(home))}"


def _taken(home: Path, path: Path) -> UserError:
    if not path.exists():
        return UserError(
            f'home "{home}" cannot be made: a file has its name',
            code=Code.ALREADY_EXISTS_ERR,
            hint="Choose another: penstock init FOLDER.",
        )
    return UserError(
        f'settings file "{path}" exists, and is kept as it is',
        code=Code.ALREADY_EXISTS_ERR,
        hint="Edit it, or remove it and type penstock init again.",
    )


def steps(penstock: str) -> str:
    """Say what to type next."""
    lines = (
        ("doctor", "does this machine have what is needed?"),
        ("sql", "create a table and a job"),
        ("run", "load, until Ctrl-C"),
    )
    width = max(len(f"{penstock} {word}") for word, _ in lines)
    typed = [f"  {f'{penstock} {word}':<{width}}  # {why}" for word, why in lines]
    return "\n".join(["Next:", *typed])
