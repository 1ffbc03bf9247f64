package subscription

import (
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/journal"
)

// PrincipalOf is who made the command of a record; nil where that is not kept.
// What does not decode is of a later release.
func PrincipalOf(rec *journal.Record) *entityv1.Principal {
	p, err := principal.Parse(rec.Section(journal.SectionPrincipal))
	if err != nil {
		return nil
	}
	return &entityv1.Principal{Kind: string(p.Kind), Name: p.Name, Groups: p.Groups}
}
