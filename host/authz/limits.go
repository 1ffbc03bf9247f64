package authz

import (
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// Limit is how much of something a caller may have.
type Limit struct {
	Most int64  // access.Unlimited, or 0 where no role says
	Role string // that says so
}

// Limits are those of a caller, by quota.
type Limits [access.NumQuotas]Limit

// add counts in what a role says: the most generous counts.
func (l *Limits) add(role string, q access.Quotas) {
	for which := range l {
		l[which].join(Limit{q.Get(access.Quota(which)), role})
	}
}

func (l *Limit) join(other Limit) {
	if other.Most != 0 && l.Most != access.Unlimited && (other.Most == access.Unlimited || other.Most > l.Most) {
		*l = other
	}
}

// rate reports whether a limit bounds what is done in a second.
func (l *Limits) rate() bool {
	return l[access.CommandsPerSecond].Most > 0 || l[access.FuelPerSecond].Most > 0 || l[access.BytesPerSecond].Most > 0
}

// Limits are what the roles of a caller say of its quotas. Of each the most
// generous role counts, of those that say something of it.
func (t *Table) Limits(p *principal.Principal) (out Limits) {
	if l := t.limits[subject{string(p.Kind), p.Name}]; l != nil {
		out = *l
	}
	for _, group := range p.Groups {
		if l := t.limits[subject{access.KindGroup, group}]; l != nil {
			for which := range out {
				out[which].join(l[which])
			}
		}
	}
	return out
}

// Rated reports whether any role that somebody has bounds what is done in a
// second.
func (t *Table) Rated() bool { return t.rated }
