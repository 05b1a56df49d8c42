"""What each code of a finding means. A page `E2202.md` beside this file tells more."""

from linnet.diagnostics.codes.titles import TITLES as TITLES
