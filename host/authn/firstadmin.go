package authn

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hostd/hostd/host/files"
	"github.com/hostd/hostd/sharding/access"
)

// maxFirstAdminBytes bounds the size of the file in ReadFirstAdmin.
const maxFirstAdminBytes = 64 << 10

// FirstAdmin is the first admin of a cluster that has none: the owner of a
// token, or a subject.
type FirstAdmin struct {
	Token   access.Token // zero if Subject is set
	Subject string
}

// Who returns the subject.
func (f FirstAdmin) Who() string {
	if f.Subject != "" {
		return f.Subject
	}
	return f.Token.Subject()
}

// ReadFirstAdmin reads a file with one line: name:sha256hex, as in a token
// file, or admin SUBJECT. Empty lines and lines that start with # are ignored.
// A token with an expiry is rejected, because the cluster would have no admin
// after that.
func ReadFirstAdmin(path string) (FirstAdmin, error) {
	text, _, err := files.Regular(path, maxFirstAdminBytes)
	if err != nil {
		return FirstAdmin{}, err
	}
	return parseFirstAdmin(string(text))
}

func parseFirstAdmin(text string) (f FirstAdmin, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch subject, names := strings.CutPrefix(line, "admin "); {
		case line == "" || line[0] == '#':
		case f != FirstAdmin{}:
			return FirstAdmin{}, errors.New("the file must have one line: a cluster has one first admin, who can create others")
		case names:
			f.Subject = strings.TrimSpace(subject)
			if err := (access.Binding{Subject: f.Subject, Roles: []string{access.RoleAdmin}}).Check(); err != nil {
				return FirstAdmin{}, err
			}
		default:
			hash, p, err := parseToken(line)
			switch {
			case err != nil:
				return FirstAdmin{}, fmt.Errorf("%w, or 'admin SUBJECT'", err)
			case !p.Expires.IsZero():
				return FirstAdmin{}, errors.New("the token of the first admin must not expire, because the cluster would then have no admin")
			}
			f.Token = access.Token{Name: p.Name, Hash: hash}
			if err := f.Token.Check(); err != nil {
				return FirstAdmin{}, err
			}
		}
	}
	if f == (FirstAdmin{}) {
		return f, errors.New("the file must have one line, a token's name:sha256hex or 'admin SUBJECT'")
	}
	return f, nil
}
