package modules

import (
	"errors"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/sharding"
)

// TestInternalCommandsNeedTheLevel: below it a node of the release before could
// serve the module, and would take internal commands from clients.
func TestInternalCommandsNeedTheLevel(t *testing.T) {
	of := func(commands string) *manifest.Manifest {
		m, err := manifest.Parse([]byte(`{"abi":1,"name":"m","entityTypes":[{"name":"first","kind":"event-sourced","encoding":"json"},` +
			`{"name":"saga","kind":"event-sourced","encoding":"json","commands":[{"name":"start"},` + commands + `]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	marked, open := of(`{"name":"step","internal":true}`), of(`{"name":"step","internal":false}`)
	var refused *rpc.RefusedError
	if err := speaks(sharding.LevelInternal-1, marked); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "saga marks commands internal") {
		t.Errorf("below the level: %v", err)
	}
	for name, err := range map[string]error{"at the level": speaks(sharding.LevelInternal, marked), "without a mark": speaks(sharding.Level1, open)} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
