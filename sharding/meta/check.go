package meta

import (
	"fmt"
	"unicode/utf8"

	"github.com/hostd/hostd/sharding"
)

func checkCluster(c Cluster) error {
	if err := checkName("cluster id", c.ID, maxNodeIDBytes); err != nil {
		return err
	}
	if c.Format == 0 {
		return fmt.Errorf("%w: the cluster version must not be 0", ErrInvalid)
	}
	if c.Shards == 0 || c.Shards > MaxShards {
		return fmt.Errorf("%w: got %d shards, 1 to %d are allowed", ErrInvalid, c.Shards, MaxShards)
	}
	return nil
}

func checkMember(m Member) error {
	if err := checkName("node id", string(m.Node), maxNodeIDBytes); err != nil {
		return err
	}
	if m.Address == "" {
		return fmt.Errorf("%w: the member has no address", ErrInvalid)
	}
	if err := checkText("address", m.Address, maxAddressBytes); err != nil {
		return err
	}
	if err := checkText("peer address", m.PeerAddress, maxAddressBytes); err != nil {
		return err
	}
	if m.Disk != "" {
		if err := checkName("disk id", m.Disk, maxNodeIDBytes); err != nil {
			return err
		}
	}
	if len(m.Roles) > MaxRoles {
		return fmt.Errorf("%w: the member has %d roles, at most %d are allowed", ErrInvalid, len(m.Roles), MaxRoles)
	}
	for _, role := range m.Roles {
		if err := checkName("role", role, maxNodeIDBytes); err != nil {
			return err
		}
	}
	if err := checkText("version", m.Version, maxNameBytes); err != nil {
		return err
	}
	if err := checkText("zone", m.Zone, maxNameBytes); err != nil {
		return err
	}
	if !m.Status.isKnown() {
		return fmt.Errorf("%w: unknown member status %.40q", ErrInvalid, string(m.Status))
	}
	return nil
}

// maxLimit is the largest value of any type limit. Nodes have lower limits of
// their own.
const maxLimit = 1 << 40

// CheckLimits checks the limits of a type. It returns ErrInvalid, or
// ErrClusterVersion for limits that a higher cluster version introduces.
func (v *View) CheckLimits(l Limits) error { return checkLimits(l, v.ClusterVersion()) }

func checkLimits(l Limits, level sharding.ClusterVersion) error {
	if (l.FuelPerSecond != 0 || l.BytesPerSecond != 0) && level < sharding.VersionBudgets {
		return fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionBudgets.NeededBy("limits on fuel and bytes per second need", level))
	}
	for _, v := range [...]int64{l.CommandFuel, l.QueryFuel, l.MaxEvents, l.EventBytes, l.ReplyBytes, l.MemoryBytes, l.TypeMemoryBytes, l.RatePerSecond, l.FuelPerSecond, l.BytesPerSecond} {
		if v < 0 || v > maxLimit {
			return fmt.Errorf("%w: a limit must be 0 to %[3]d, got %[2]d", ErrInvalid, v, int64(maxLimit))
		}
	}
	return nil
}

// checkName checks a name that becomes part of a storage key. It must consist
// of [A-Za-z0-9._-].
func checkName(what, name string, limit int) error {
	if name == "" || len(name) > limit {
		return fmt.Errorf("%w: the %s has %d bytes, 1 to %d are allowed", ErrInvalid, what, len(name), limit)
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("%w: the %s has a character outside [A-Za-z0-9._-] at byte %d", ErrInvalid, what, i)
		}
	}
	return nil
}

// checkText checks text for display. It uses no Unicode tables, which differ
// between Go releases, because every replica must accept or reject a command
// identically.
func checkText(what, text string, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("%w: the %s has %d bytes, at most %d are allowed", ErrInvalid, what, len(text), limit)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%w: the %s is not UTF-8", ErrInvalid, what)
	}
	for i := 0; i < len(text); i++ {
		if text[i] < 0x20 || text[i] == 0x7f {
			return fmt.Errorf("%w: the %s has a control character at byte %d", ErrInvalid, what, i)
		}
	}
	return nil
}
