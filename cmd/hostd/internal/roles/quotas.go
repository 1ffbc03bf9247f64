package roles

import (
	"strconv"
	"strings"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/sharding/access"
)

// quotaFields returns the fields of a message, indexed by access.Quota.
func quotaFields(m *clusterv1.RoleQuotas) [access.NumQuotas]*int64 {
	return [...]*int64{
		&m.CommandsPerSecond, &m.FuelPerSecond, &m.BytesPerSecond, &m.Streams, &m.Connections, &m.Uploads, &m.CompileSecondsPerMinute,
	}
}

// parseQuotas parses NAME=VALUE pairs; nil if there are none.
func parseQuotas(pairs []string) (*clusterv1.RoleQuotas, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	out := &clusterv1.RoleQuotas{}
	for _, pair := range pairs {
		name, text, _ := strings.Cut(pair, "=")
		found := false
		for i, into := range quotaFields(out) {
			if access.QuotaNames[i] != name {
				continue
			}
			found = true
			if text == access.QuotaText(access.Unlimited) {
				*into = access.Unlimited
				continue
			}
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 1 || n > access.MaxQuota {
				return nil, cli.Usagef("--quota %s: must be %s=NUMBER, 1 to %d, or %s=unlimited", pair, name, int64(access.MaxQuota), name)
			}
			*into = n
		}
		if !found {
			return nil, cli.Usagef("--quota %s: must be one of %s", pair, strings.Join(access.QuotaNames[:], ", "))
		}
	}
	return out, nil
}

// quotasText formats the quotas that are set.
func quotasText(m *clusterv1.RoleQuotas) string {
	if m == nil {
		return all(nil)
	}
	var out []string
	for i, n := range quotaFields(m) {
		if *n != 0 {
			out = append(out, access.QuotaNames[i]+"="+access.QuotaText(*n))
		}
	}
	return all(out)
}
