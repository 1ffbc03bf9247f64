package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// checkTop checks that a single measurement prints one table of nodes and one
// of types, and with -o json one JSON value.
func checkTop(t *testing.T) {
	t.Helper()
	got := hostd(t, "top", "--interval", "1s")
	if got.code != cli.ExitDone || !strings.HasPrefix(got.out, "NODE ") || !strings.Contains(got.out, "\nn1 ") || !strings.Contains(got.out, "\nTYPE ") || !strings.Contains(got.out, "\ncounter ") || strings.Contains(got.out, "\x1b") {
		t.Errorf("%+v", got)
	}
	var all struct {
		Nodes []struct {
			NodeID string `json:"nodeId"`
			Period string `json:"period"`
			Node   struct {
				MemoryBytes uint64 `json:"memoryBytes"`
			} `json:"node"`
		} `json:"nodes"`
		Types []struct {
			EntityType string `json:"entityType"`
		} `json:"types"`
		MissingNodes []string `json:"missingNodes"`
	}
	got = hostd(t, "top", "--interval", "1s", "--hot", "0", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &all); err != nil || len(all.Nodes) != 1 || all.Nodes[0].NodeID != "n1" || !strings.HasSuffix(all.Nodes[0].Period, "s") || all.Nodes[0].Node.MemoryBytes == 0 ||
		len(all.Types) == 0 || all.MissingNodes == nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, args := range [][]string{{"--interval", "10ms"}, {"--interval", "2m"}, {"--hot", "101"}} {
		if got := hostd(t, append([]string{"top"}, args...)...); got.code != cli.ExitUsage {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
