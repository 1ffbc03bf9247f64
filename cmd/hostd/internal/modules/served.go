package modules

import (
	"fmt"
	"strings"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/sharding"
)

// PartsText describes a module's part in entity types that a different module
// serves.
func PartsText(m *modulev1.Module) string { return strings.Join(PartsOf(m), "; ") }

// PartsOf describes, for each entity type that a different module serves,
// the part of the type whose entities the module m serves.
func PartsOf(m *modulev1.Module) []string {
	var out []string
	for _, p := range m.GetParts() {
		out = append(out, cli.Clean(p.GetEntityType())+": "+onePart(p))
	}
	return out
}

func onePart(p *modulev1.Part) string {
	stay := fmt.Sprintf("%d pinned entities", p.GetRemainingEntities())
	switch p.GetKind() {
	case modulev1.Part_KIND_SHADOW:
		return sharding.Percent(p.GetShare()) + " of commands (shadow)"
	case modulev1.Part_KIND_REMAINDER:
		return stay
	case modulev1.Part_KIND_VERIFICATION:
		return stateName(p.GetState())
	default:
		text := partText(p.GetShare(), p.GetPrefix())
		if p.GetRemainingEntities() > 0 {
			text += " and " + stay
		}
		return text + " (" + stateName(p.GetState()) + ")"
	}
}
