package replay

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/sharding"
)

// TestCataloguesAreBoundedInNames checks that the node evicts catalogues if
// they contain too many event types together, and keeps the newest catalogue.
func TestCataloguesAreBoundedInNames(t *testing.T) {
	c := newCatalogues()
	for shard := range sharding.ShardID(1000) {
		key := catalogueKey{shard, "t"}
		k := &catalogue{counts: map[string]uint64{}}
		for i := range mostEventTypes {
			k.counts[fmt.Sprint(i)] = 1
		}
		c.known[key] = k
		c.trim(key)
		names := 0
		for _, k := range c.known {
			names += len(k.counts)
		}
		if names > mostNames || c.known[key] != k {
			t.Fatalf("shard %d: %d names in %d catalogues", shard, names, len(c.known))
		}
	}
	if len(c.known) != mostNames/mostEventTypes {
		t.Errorf("%d catalogues are left", len(c.known))
	}
}
