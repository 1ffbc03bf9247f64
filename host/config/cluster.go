package config

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/hostd/hostd/sharding/membership/seeds"
)

// Role is a role of a node.
type Role string

// The values of Config.Roles.
const (
	RoleHost  Role = "host"  // holds shards and runs their entities
	RoleProxy Role = "proxy" // routes requests and holds no shards
)

// Bounds of the keys about the cluster.
const (
	maxSeeds        = 64
	maxAllowHosts   = 64
	maxMembers      = 128
	maxReplication  = 7
	maxAddressBytes = 256
	maxKeyFileBytes = 1 << 10
)

// checkCluster checks the keys about the cluster.
func (c *Config) checkCluster(fault func(key, format string, args ...any)) {
	if len(c.Seeds) > maxSeeds {
		fault("seeds", "must have at most %d addresses, got %d", maxSeeds, len(c.Seeds))
	}
	for _, seed := range c.Seeds {
		if err := seeds.Check(seed); err != nil {
			fault("seeds", "%w", err)
		}
	}
	if err := checkName(c.ClusterName); err != nil {
		fault("cluster-name", "%w", err)
	}
	if c.Zone != "" {
		if err := checkName(c.Zone); err != nil {
			fault("zone", "%w", err)
		}
	}
	if len(c.Roles) != 1 || !slices.Contains([]Role{RoleHost, RoleProxy}, c.Roles[0]) {
		fault("roles", "must be %s or %s, got %q", RoleHost, RoleProxy, c.Roles)
	}
	if c.Replication%2 == 0 {
		fault("replication", "must be odd, got %d: one more replica raises the quorum and tolerates no additional failure", c.Replication)
	}
	if c.Proxy() && len(c.Seeds) == 0 {
		fault("roles", "%s needs seeds: a node that holds no shards cannot bootstrap a cluster", RoleProxy)
	}
	if c.BootstrapExpect < 0 || c.BootstrapExpect > maxMembers {
		fault("bootstrap-expect", "must be between 0 and %d, got %d", maxMembers, c.BootstrapExpect)
	}
	if c.BootstrapExpect > 1 && len(c.Seeds) == 0 {
		fault("bootstrap-expect", "a value above 1, got %d, needs seeds to find the other nodes", c.BootstrapExpect)
	}
	if c.Proxy() && c.Bootstrap {
		fault("bootstrap", "must not be set on a %s, which holds no shards: set it on one %s", RoleProxy, RoleHost)
	}
}

// Proxy reports whether the node holds no shards.
func (c *Config) Proxy() bool { return slices.Contains(c.Roles, RoleProxy) }

// MinHosts returns how many nodes that hold shards have to be up before shards are
// placed, in a cluster that this node bootstraps. If min-members is unset, it is
// the smaller of bootstrap-expect and replication, so that a new shard has
// all its voters at once if enough nodes are expected.
func (c *Config) MinHosts() int {
	if c.MinMembers > 0 {
		return c.MinMembers
	}
	return max(1, min(c.BootstrapExpect, c.Replication))
}

// errKeyFile does not include the content of the file, which is secret.
var errKeyFile = errors.New("gossip-key-file: the file must hold 16, 24 or 32 bytes in base64 and nothing else, as from 'openssl rand -base64 32'")

// GossipKey reads the gossip key. It returns nil if gossip-key-file is unset.
func (c *Config) GossipKey() ([]byte, error) {
	if c.GossipKeyFile == "" {
		return nil, nil
	}
	f, err := os.Open(c.GossipKeyFile)
	if err != nil {
		return nil, fmt.Errorf("gossip-key-file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFileBytes))
	if err != nil {
		return nil, fmt.Errorf("gossip-key-file: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(key) != 16 && len(key) != 24 && len(key) != 32 {
		return nil, errKeyFile
	}
	return key, nil
}

// checkName rejects names that contain anything outside [a-z0-9._-], because names
// become parts of storage keys and metric labels.
func checkName(name string) error {
	if name == "" || len(name) > 64 {
		return fmt.Errorf("must have 1 to 64 bytes, got %d", len(name))
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("has a character outside [a-z0-9._-] at byte %d", i)
		}
	}
	return nil
}
