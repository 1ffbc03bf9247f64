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

// Role is something that a node takes on.
type Role string

// The values of Config.Roles.
const (
	RoleHost  Role = "host"  // holds shards and runs their entities
	RoleProxy Role = "proxy" // routes, and holds none
)

// Hard bounds of what a node is told of its cluster.
const (
	maxSeeds        = 64
	maxAllowHosts   = 64
	maxMembers      = 128
	maxReplication  = 7
	maxAddressBytes = 256
	maxKeyFileBytes = 1 << 10
)

// checkCluster checks what a node is told of its cluster.
func (c *Config) checkCluster(fault func(key, format string, args ...any)) {
	if len(c.Seeds) > maxSeeds {
		fault("seeds", "has %d addresses, at most %d are used", len(c.Seeds), maxSeeds)
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
		fault("roles", "is %q, must be %s or %s", c.Roles, RoleHost, RoleProxy)
	}
	if c.Replication%2 == 0 {
		fault("replication", "is %d, must be odd: an even replica more asks for a vote more and spares none", c.Replication)
	}
	if c.Proxy() && len(c.Seeds) == 0 {
		fault("roles", "is %s and there are no seeds: a node that holds nothing cannot found a cluster", RoleProxy)
	}
	if c.BootstrapExpect < 0 || c.BootstrapExpect > maxMembers {
		fault("bootstrap-expect", "is %d, must be 0 to %d", c.BootstrapExpect, maxMembers)
	}
	if c.BootstrapExpect > 1 && len(c.Seeds) == 0 {
		fault("bootstrap-expect", "is %d and there are no seeds to find the others by", c.BootstrapExpect)
	}
	if c.Proxy() && c.Bootstrap {
		fault("bootstrap", "is set on a %s, which holds nothing: set it on one %s", RoleProxy, RoleHost)
	}
}

// Proxy reports that the node holds no shards.
func (c *Config) Proxy() bool { return slices.Contains(c.Roles, RoleProxy) }

// PlaceFrom is how many nodes that hold shards have to be up before a shard is
// placed, in a cluster that this node founds. Where it is not given, a shard
// has all its voters from the beginning if so many nodes were expected.
func (c *Config) PlaceFrom() int {
	if c.MinMembers > 0 {
		return c.MinMembers
	}
	return max(1, min(c.BootstrapExpect, c.Replication))
}

// errKeyFile does not say what is in the file.
var errKeyFile = errors.New("gossip-key-file: the file must hold 16, 24 or 32 bytes in base64 and nothing else, as from 'openssl rand -base64 32'")

// GossipKey reads the key of the gossip; nil when there is no key file.
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

// checkName holds names to [a-z0-9._-]: they become parts of keys and labels.
func checkName(name string) error {
	if name == "" || len(name) > 64 {
		return fmt.Errorf("has %d bytes, must have 1 to 64", len(name))
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("has a character outside [a-z0-9._-] at byte %d", i)
		}
	}
	return nil
}
