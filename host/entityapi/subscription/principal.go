package subscription

import (
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/journal"
)

// PrincipalOf returns the caller whose command made a record; nil if it is
// not stored, or if a later release has stored it in a form that this release
// cannot decode.
func PrincipalOf(rec *journal.Record) *entityv1.Principal {
	p, err := principal.Parse(rec.Section(journal.SectionPrincipal))
	if err != nil {
		return nil
	}
	return &entityv1.Principal{Kind: string(p.Kind), Name: p.Name, Groups: p.Groups}
}
