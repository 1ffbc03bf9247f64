package authn

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding/access"
)

func TestFirstAdmins(t *testing.T) {
	token := NewToken()
	good := line(t, "root", token, time.Time{})
	for text, want := range map[string]FirstAdmin{
		"# first\n\n" + good + "\n":     {Token: access.Token{Name: "root", Hash: access.HashToken(token)}},
		"admin group:ops":               {Subject: "group:ops"},
		"  admin  certificate:ann \r\n": {Subject: "certificate:ann"},
		"admin jwt:ann of the desk":     {Subject: "jwt:ann of the desk"},
	} {
		got, err := parseFirstAdmin(text)
		if err != nil || got != want || namedWell(got) != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"":                                   "must have one line, a token",
		"# none":                             "must have one line, a token",
		good + "\nadmin group:ops":           "must have one line: a cluster",
		"admin group:ops\nadmin group:other": "must have one line: a cluster",
		"admin anonymous":                    "cannot have the role admin",
		"admin ops":                          "invalid subject",
		"group:ops":                          "or 'admin SUBJECT'",
		line(t, "root", token, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)): "must not expire",
	} {
		if got, err := parseFirstAdmin(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	path := filepath.Join(t.TempDir(), "first")
	if _, err := ReadFirstAdmin(path); err == nil {
		t.Error("a file that is not there is read")
	}
	write(t, path, good)
	if got, err := ReadFirstAdmin(path); err != nil || got.Who() != "token:root" {
		t.Errorf("%+v, %v", got, err)
	}
}

// namedWell checks that the first admin is a valid subject.
func namedWell(f FirstAdmin) error { return access.CheckSubject(f.Who()) }
