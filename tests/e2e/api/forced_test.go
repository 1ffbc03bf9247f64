package api

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestHistoryNamesTokenThatForcedActivation checks that with authentication, the history
// of a type names the token that forced a module's activation and, for every other
// module, the token that activated it.
func TestHistoryNamesTokenThatForcedActivation(t *testing.T) {
	with := newCredentials(t)
	boss := authn.NewToken()
	with.write(with.line("ci", with.good, time.Time{}), with.line("boss", boss, time.Time{}))
	node := testkit.StartNode(t, testkit.NodeOptions{Flags: with.flags("required"), Token: with.good})
	file := func(name string, text []byte) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pushing, forcing := file("ci", []byte(with.good+"\n")), file("boss", []byte(boss+"\n"))
	run := func(token string, args ...string) (string, int) {
		t.Helper()
		return node.Run(append([]string{"module"}, append(args, "--token-file", token, "--addr", node.API())...)...)
	}
	frames := guest.Happened()
	listing := func(event string) []byte {
		return guest.Module{
			Bad: "shop", Frames: frames, Handle: guest.Span(guest.FramesAt, uint32(len(frames))),
			Manifest: `{"abi":1,"name":"shop","version":"1","entityTypes":[{"name":"shop","kind":"event-sourced","encoding":"bytes","events":[{"type":"` + event + `"}]}]}`,
		}.Build()
	}
	if out, code := run(pushing, "push", file("first.wasm", listing("happened"))); code != 0 {
		t.Fatalf("push ends with %d: %s", code, out)
	}
	c := node.Client(client.Options{Timeout: testkit.Patience})
	if _, err := c.Send(t.Context(), client.Command{EntityType: "shop", EntityID: "e", Name: "go"}); err != nil {
		t.Fatal(err)
	}
	lacking, err := c.Upload(t.Context(), listing("renamed"), false)
	if err != nil {
		t.Fatal(err)
	}
	if out, code := run(forcing, "activate", "shop", lacking.Digest, "--force"); code != 0 {
		t.Fatalf("activate --force ends with %d: %s", code, out)
	}
	out, code := run(forcing, "history", "shop", "-o", "json")
	var history struct {
		Changes []struct {
			Kind, ChangedBy string
			Forced          bool
		}
	}
	if err := json.Unmarshal([]byte(out), &history); code != 0 || err != nil {
		t.Fatalf("history ends with %d, %v: %s", code, err, out)
	}
	if all := history.Changes; len(all) != 2 || all[0].ChangedBy != "token:boss" || !all[0].Forced || all[1].ChangedBy != "token:ci" || all[1].Forced {
		t.Errorf("the history is %s", out)
	}
	if out, code := run(forcing, "history", "shop"); code != 0 || !strings.Contains(out, "token:boss") {
		t.Errorf("for people it ends with %d: %s", code, out)
	}
}
