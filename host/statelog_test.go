package host

import (
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
)

// TestStateNamesFewShards checks the bound of a line with many shards.
func TestStateNamesFewShards(t *testing.T) {
	if many := shardList(make([]sharding.ShardID, 1000)); strings.Count(many, "0 ") != maxStateShards || !strings.HasSuffix(many, "and 936 more") {
		t.Errorf("%s", many)
	}
}
