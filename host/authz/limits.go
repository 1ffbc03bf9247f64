package authz

import (
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// Limit is the bound of a quota for a caller.
type Limit struct {
	Most int64  // access.Unlimited, or 0 if no role sets a limit
	Role string // the role that sets it
}

// Limits are the limits of a caller, by quota.
type Limits [access.NumQuotas]Limit

// add adds the quotas of a role. Of each quota, the most generous value is
// kept.
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

// rate reports whether any limit is a limit per second.
func (l *Limits) rate() bool {
	return l[access.CommandsPerSecond].Most > 0 || l[access.FuelPerSecond].Most > 0 || l[access.BytesPerSecond].Most > 0
}

// Limits returns the limits of a caller. Each limit is the most generous
// value among the roles that set the quota.
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

// HasRates reports whether any bound role has a limit per second.
func (t *Table) HasRates() bool { return t.rated }
