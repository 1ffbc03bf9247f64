package moduleapi

import (
	"context"
	"fmt"
	"strings"

	"github.com/hostd/hostd/abi"
)

// foreignSends returns warnings about the types of other owners to which a type
// sends messages, according to its manifest. It does not list types that match
// only a pattern, because the caller may not be allowed to know that they
// exist.
func foreignSends(ctx context.Context, types Types, entityType string) (remarks []string) {
	from, err := types.Lookup(ctx, entityType)
	if err != nil {
		return nil
	}
	open := from.Sends == nil
	for _, name := range from.Sends {
		if strings.HasSuffix(name, "*") {
			open = true
			continue
		}
		to, err := types.Lookup(ctx, name)
		switch {
		case err != nil || to.Owners == nil || !to.Owners.IsForeign(entityType):
		case to.AcceptsFrom != nil && abi.MatchesType(to.AcceptsFrom, entityType):
			remarks = append(remarks, fmt.Sprintf("%s sends to %s, which belongs to a different owner and accepts its messages", entityType, name))
		default:
			remarks = append(remarks, fmt.Sprintf("%s sends to %s, which belongs to a different owner and rejects its messages: acceptsFrom of its module does not list %s", entityType, name, entityType))
		}
	}
	if open && knowsForeign(ctx, types, entityType) {
		remarks = append(remarks, fmt.Sprintf("%s does not list all types that it sends to; types of other owners reject its messages unless acceptsFrom of their modules lists it", entityType))
	}
	return remarks
}

// knowsForeign reports whether there is a type of a different owner.
func knowsForeign(ctx context.Context, types Types, entityType string) bool {
	for _, name := range types.Names() {
		if to, err := types.Lookup(ctx, name); err == nil && to.Owners != nil && to.Owners.IsForeign(entityType) {
			return true
		}
	}
	return false
}
