package command

import (
	"fmt"
	"unicode/utf8"

	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// maxNameBytes limits the name of a command or a query.
const maxNameBytes = 255

// CheckName validates the name of a command or a query.
func CheckName(what, name string) error {
	if name == "" {
		return status.Argument("the " + what + " is empty")
	}
	return checkText(what, name, maxNameBytes)
}

// CheckID validates a caller's command id.
func CheckID(id string) error {
	return checkText("command id", id, journal.MaxCommandIDBytes)
}

func checkText(what, s string, limit int) error {
	if len(s) > limit {
		return status.Argument(fmt.Sprintf("the %s has %d bytes, at most %d are allowed", what, len(s), limit))
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf {
			return checkRunes(what, s)
		} else if c < 0x20 || c == 0x7f {
			return status.Argument(fmt.Sprintf("the %s has a control character at byte %d", what, i))
		}
	}
	return nil
}

func checkRunes(what, s string) error {
	if !utf8.ValidString(s) {
		return status.Argument("the " + what + " is not UTF-8")
	}
	for i, r := range s {
		if !sharding.Printable(r) {
			return status.Argument(fmt.Sprintf("the %s has an unprintable character at byte %d", what, i))
		}
	}
	return nil
}
