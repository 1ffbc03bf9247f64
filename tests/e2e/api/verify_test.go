package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// replayed is the JSON output of module verify.
type replayed struct {
	Entities, Events    uint64
	Faults, Differences []difference
	Stored              bool
}

type difference struct {
	EntityID, Description, EventType string
	Sequence                         uint64
	Fault                            bool
	Patch                            []struct {
		Op, Path string
		Value    any
	}
}

// verifying is a cluster on which modules are verified.
type verifying struct {
	*testkit.Cluster
	t *testing.T
	c *client.Client
}

func (v verifying) upload(wasm []byte, activate bool) string {
	v.t.Helper()
	up, err := v.c.Upload(v.t.Context(), wasm, activate)
	if err != nil {
		v.t.Fatal(err)
	}
	return up.Digest
}

// verify runs module verify on a node. Its exit code says whether all replays
// agreed.
func (v verifying) verify(at int, args ...string) (out replayed, code int) {
	v.t.Helper()
	n := v.Node(at)
	text, code := n.Run(append([]string{"module", "verify", "--addr", n.API(), "-o", "json"}, args...)...)
	if from := strings.Index(text, "{"); from < 0 {
		v.t.Fatalf("module verify %v ends with %d: %s", args, code, text)
	} else if err := json.NewDecoder(strings.NewReader(text[from:])).Decode(&out); err != nil {
		v.t.Fatalf("%v: %s", err, text)
	}
	return out, code
}

// TestVerifyModules checks the verification of modules through any node. A
// module that replays all histories to the same states agrees. If a module
// computes different states, each entity is reported with the first event at
// which they differ. Failures of a module are reported separately. During all
// of this, the active module serves the entities.
func TestVerifyModules(t *testing.T) {
	const entities = 24
	v := verifying{Cluster: testkit.StartCluster(t, 3, testkit.ClusterOptions{}), t: t}
	v.c = v.Client(client.Options{Timeout: testkit.Patience})
	same := v.upload(testkit.BuildGuest(t, "tests/e2e/entities/guest"), true)
	other := v.upload(testkit.BuildGuest(t, "tests/e2e/entities/later"), false)
	frames := guest.Happened()
	good := guest.Module{Bad: "shop", Frames: frames, Handle: guest.Span(guest.FramesAt, uint32(len(frames)))}
	v.upload(good.Build(), true)
	session := v.upload(testkit.BuildExample(t, "session"), true)
	failing := good
	failing.Apply = []byte{0x20, 1, 0x04, 0x40, 0x00, 0x0b, 0x41, 0} // traps on any event
	broken := v.upload(failing.Build(), false)
	for i := range entities {
		id := fmt.Sprint("e", i)
		// The first event adds nothing, so both modules compute the same state from
		// it.
		for _, amount := range []int{0, 1, 2} {
			if _, err := v.c.Send(t.Context(), client.Command{EntityType: "trail", EntityID: id, Name: "add", Data: fmt.Appendf(nil, `{"amount":%d}`, amount)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := v.c.Send(t.Context(), client.Command{EntityType: "shop", EntityID: id, Name: "go"}); err != nil {
			t.Fatal(err)
		}
	}
	// One entity is deleted and created again. The events of both incarnations are
	// replayed.
	if out, code := v.Node(0).Run("entity", "delete", "trail", "e0", "--addr", v.Node(0).API()); code != 0 {
		t.Fatalf("entity delete ends with %d: %s", code, out)
	}
	for _, amount := range []int{0, 1, 2} {
		if _, err := v.c.Send(t.Context(), client.Command{EntityType: "trail", EntityID: "e0", Name: "add", Data: fmt.Appendf(nil, `{"amount":%d}`, amount)}); err != nil {
			t.Fatal(err)
		}
	}
	const events = 3*entities + 3
	for at := range 3 {
		if got, code := v.verify(at, "trail", same, "--all"); code != 0 || got.Entities != entities || got.Events != events || len(got.Differences) != 0 || len(got.Faults) != 0 || !got.Stored {
			t.Errorf("node %d, the module that serves: %d, %+v", at, code, got)
		}
	}
	got, code := v.verify(1, "trail", other[:12], "--all")
	if code != 3 || got.Entities != entities || len(got.Differences) != entities || len(got.Faults) != 0 || !got.Stored {
		t.Errorf("another module: %d, %+v", code, got)
	}
	found := map[string]bool{}
	for _, d := range got.Differences {
		found[d.EntityID] = true
		if d.Sequence != 2 || d.Fault || !strings.Contains(d.Description, `"total":2`) || !strings.Contains(d.Description, `"total":1`) {
			t.Errorf("a difference is %+v", d)
		}
		if len(d.Patch) != 1 || d.Patch[0].Op != "replace" || d.Patch[0].Path != "/total" || d.Patch[0].Value != 2.0 {
			t.Errorf("its patch is %+v", d.Patch)
		}
	}
	if out, code := v.Node(1).Run("module", "verify", "trail", other, "--all", "--addr", v.Node(1).API()); code != 3 || strings.Count(out, "replace /total 2") != entities {
		t.Errorf("for people, %d: %s", code, out)
	}
	if len(found) != entities {
		t.Errorf("differences in %d entities", len(found))
	}
	got, code = v.verify(2, broken, "--type", "shop", "--all")
	if code != 4 || len(got.Differences) != 0 || len(got.Faults) != entities || slices.ContainsFunc(got.Faults, func(d difference) bool {
		return !d.Fault || d.Sequence != 1 || d.EventType != "happened" || !strings.Contains(d.Description, "unreachable")
	}) {
		t.Errorf("a module that fails: %d, %+v", code, got)
	}
	for _, name := range []string{"login", "logout", "login"} {
		if _, err := v.c.Send(t.Context(), client.Command{EntityType: "session", EntityID: "mall7-user42", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	if got, code := v.verify(0, "session", session, "--all"); code != 0 || got.Entities != 1 || got.Events == 0 {
		t.Errorf("a type whose state is durable: %d, %+v", code, got)
	}
	if got, code := v.verify(0, "trail", same, "--sample", "10"); code != 0 || got.Entities == 0 || got.Entities > 10 {
		t.Errorf("a sample: %d, %+v", code, got)
	}
	if r, err := v.c.Send(t.Context(), client.Command{EntityType: "trail", EntityID: "e0", Name: "add", Data: []byte(`{"amount":1}`)}); err != nil || !strings.Contains(string(r.Data), `"total":4`) {
		t.Errorf("a command afterwards: %s, %v", r.Data, err)
	}
}

// TestVerifyRespectsMemoryLimits checks that a module is verified within
// the memory limits of its type.
func TestVerifyRespectsMemoryLimits(t *testing.T) {
	v := verifying{Cluster: testkit.StartCluster(t, 1, testkit.ClusterOptions{}), t: t}
	v.c = v.Client(client.Options{Timeout: testkit.Patience})
	frames := guest.Happened()
	good := guest.Module{Bad: "shop", Frames: frames, Handle: guest.Span(guest.FramesAt, uint32(len(frames)))}
	serves := v.upload(good.Build(), true)
	grows := good // grows memory by 32 pages of 64 KiB with each batch of events, and traps if that fails
	grows.Apply = []byte{0x41, 32, 0x40, 0, 0x41, 0x7f, 0x46, 0x04, 0x40, 0x00, 0x0b, 0x41, 0}
	tried := v.upload(grows.Build(), false)
	large := good
	large.MemoryPages = 32
	least := v.upload(large.Build(), false)
	const entities = 8
	for i := range entities {
		if _, err := v.c.Send(t.Context(), client.Command{EntityType: "shop", EntityID: fmt.Sprint("e", i), Name: "go"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		limit       string
		differences int
		starts      bool // use the module that needs 2 MiB to start
	}{
		{"", 0, true},
		{"memory-bytes=4194304", 0, true},
		{"memory-bytes=1048576", entities, false},
		{"type-memory-bytes=1048576", entities, false},
	} {
		if out, code := v.Node(0).Run("module", "activate", "shop", serves, "--limit", tt.limit, "--addr", v.Node(0).API()); tt.limit != "" && code != 0 {
			t.Fatalf("module activate --limit %s: %d\n%s", tt.limit, code, out)
		}
		got, _ := v.verify(0, "shop", tried, "--all")
		if got.Entities != entities || len(got.Faults) != tt.differences || len(got.Differences) != 0 {
			t.Errorf("limits %q: %+v", tt.limit, got)
		}
		out, code := v.Node(0).Run("module", "verify", "shop", least, "--all", "--addr", v.Node(0).API())
		if (code == 0) != tt.starts || !tt.starts && !strings.Contains(out, "does not start within the memory limits") {
			t.Errorf("limits %q, a module that is large at its start: %d, %s", tt.limit, code, out)
		}
	}
}

// TestImpossibleVerificationIsRejected checks the error of each verification that is impossible.
func TestImpossibleVerificationIsRejected(t *testing.T) {
	s := start(t, testkit.NodeOptions{})
	s.upload(t, release("one"))
	digest := strings.Fields(s.digests(t)[0])[0]
	other, err := s.call(t.Context(), &modulev1.UploadModuleRequest{Wasm: guest.Module{Good: "else"}.Build()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		request *modulev1.VerifyModuleRequest
		code    connect.Code
	}{
		{"no digest", &modulev1.VerifyModuleRequest{EntityType: "shop"}, connect.CodeInvalidArgument},
		{"unknown module", &modulev1.VerifyModuleRequest{EntityType: "shop", Digest: strings.Repeat("ab", 32)}, connect.CodeNotFound},
		{"unknown type", &modulev1.VerifyModuleRequest{EntityType: "nothing", Digest: digest}, connect.CodeNotFound},
		{"module of other types", &modulev1.VerifyModuleRequest{EntityType: "shop", Digest: other.(*modulev1.UploadModuleResponse).GetDigest()}, connect.CodeInvalidArgument},
		{"no entities", &modulev1.VerifyModuleRequest{EntityType: "shop", Digest: digest, Scope: &modulev1.VerifyModuleRequest_Sample{}}, connect.CodeInvalidArgument},
		{"more than fit", &modulev1.VerifyModuleRequest{EntityType: "shop", Digest: digest, Scope: &modulev1.VerifyModuleRequest_Sample{Sample: 1 << 31}}, connect.CodeInvalidArgument},
		{"another revision", &modulev1.VerifyModuleRequest{EntityType: "shop", Digest: digest, Revision: 1 << 40}, connect.CodeFailedPrecondition},
		{"no such shard", &modulev1.VerifyModuleRequest{EntityType: "shop", Digest: digest, ShardId: 4000}, connect.CodeInvalidArgument},
	} {
		stream, err := s.modules().VerifyModule(t.Context(), connect.NewRequest(c.request))
		if err == nil {
			for stream.Receive() {
			}
			err = errors.Join(stream.Err(), stream.Close())
		}
		if connect.CodeOf(err) != c.code {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
