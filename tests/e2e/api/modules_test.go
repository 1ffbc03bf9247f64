package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/abi"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

func (s *surface) digests(t *testing.T) []string {
	t.Helper()
	res, err := s.modules().ListModules(t.Context(), connect.NewRequest(&modulev1.ListModulesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range res.Msg.GetModules() {
		all = append(all, m.GetDigest()+" "+strings.Join(m.GetActiveFor(), ","))
	}
	return all
}

// upload uploads and activates a module, which must succeed.
func (s *surface) upload(t *testing.T, m guest.Module) {
	t.Helper()
	if _, err := s.call(t.Context(), &modulev1.UploadModuleRequest{Wasm: m.Build(), Activate: true}); err != nil {
		t.Fatalf("upload: %v\n%s", err, s.node.Log())
	}
}

// TestBadModules checks that a file that is not a valid guest is rejected with
// its first fault and is not stored.
func TestBadModules(t *testing.T) {
	s := start(t, testkit.NodeOptions{})
	s.upload(t, guest.Module{Good: "good"})
	if res := s.send(t, command("good", "a", "go", "")); string(res.GetData()) != "done" || res.GetEventCount() != 1 {
		t.Fatalf("a guest without a fault gave %v", res)
	}
	whole := guest.Module{Good: "bad"}.Build()
	before := s.digests(t)
	for _, m := range []struct {
		name string
		wasm []byte
		say  string
	}{
		{"no bytes", nil, "wasm"},
		{"text", []byte("hello, this is no module"), "header"},
		{"only a header", whole[:8], ""},
		{"cut off", whole[:len(whole)/2], ""},
		{"bytes behind the end", append(slices.Clone(whole), 1, 2, 3), ""},
		{"another version of Wasm", append([]byte("\x00asm\x02"), whole[5:]...), "version"},
		{"another ABI", guest.Module{Good: "bad", ABI: 2}.Build(), "version 1"},
		{"another ABI in the manifest", guest.Module{Manifest: `{"abi":2,"name":"x","entityTypes":[{"name":"bad","kind":"event-sourced","encoding":"bytes"}]}`}.Build(), "abi"},
		{"missing export", guest.Module{Good: "bad", Omit: abi.ExportHandle}.Build(), abi.ExportHandle},
		{"forbidden import", guest.Module{Good: "bad", Import: &guest.Import{Module: "env", Name: "abort"}}.Build(), "env.abort"},
		{"forbidden WASI", guest.Module{Good: "bad", Import: &guest.Import{Module: "wasi_snapshot_preview1", Name: "sock_accept"}}.Build(), "sock_accept"},
		{"import of another type", guest.Module{Good: "bad", Import: &guest.Import{Module: "hostd", Name: "now"}}.Build(), "now"},
		{"start section", guest.Module{Good: "bad", Start: true}.Build(), "start"},
		{"too much memory", guest.Module{Good: "bad", MemoryPages: 60_000}.Build(), "memory"},
		{"manifest that is no JSON", guest.Module{Manifest: "{"}.Build(), "manifest"},
		{"no entity types", guest.Module{Manifest: `{"abi":1,"name":"x","entityTypes":[]}`}.Build(), "entityTypes"},
		{"bad type name", guest.Module{Good: "Bad"}.Build(), "entityTypes[0].name"},
		{"type twice", guest.Module{Good: "bad", Bad: "bad"}.Build(), "is duplicated"},
		{"body that does not validate", guest.Module{Good: "good", Bad: "bad", Handle: []byte{0x6a}}.Build(), ""},
	} {
		t.Run(m.name, func(t *testing.T) {
			_, err := s.call(t.Context(), &modulev1.UploadModuleRequest{Wasm: m.wasm, Activate: true})
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), m.say) {
				t.Errorf("got %v, want invalid_argument and a message with %q", err, m.say)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			if after := s.digests(t); !slices.Equal(before, after) {
				t.Errorf("the modules are %v, were %v", after, before)
			}
		})
	}
	_, err := s.call(t.Context(), command("bad", "a", "go", ""))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("the type of the refused modules: %v", err)
	}
	digest := strings.Fields(before[0])[0]
	_, err = s.call(t.Context(), &modulev1.ActivateModuleRequest{EntityType: "other", Digest: digest})
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "other") {
		t.Errorf("activation of a type that is not in the module: %v", err)
	}
	s.send(t, command("good", "a", "go", ""))
}

// TestGuestFaults checks that a module that violates the ABI fails only the
// current command. It must not affect the entity's history, other entities in
// the same instance, or other modules.
func TestGuestFaults(t *testing.T) {
	s := start(t, testkit.NodeOptions{}, "counter")
	s.send(t, command("counter", "neighbour", "add", `{"amount":1}`))
	big := make([]byte, 300<<10)
	huge := abi.AppendFrame(nil, abi.OutReply, big)
	for _, f := range []struct {
		name   string
		handle []byte
		frames []byte
		say    string
		code   connect.Code // expected code; 0 means CodeInternal
	}{
		{"trap", guest.Unreachable, nil, "unreachable", 0},
		{"span-outside", guest.Span(guest.MemoryBytes-4, 8), nil, "memory", 0},
		{"span-overflows", guest.Span(0xffff_fff0, 0x20), nil, "memory", 0},
		{"span-too-long", guest.Span(0, 3<<20), nil, "memory", 0},
		{"unknown-frame", guest.Span(guest.FramesAt, 5), []byte{99, 0, 0, 0, 0}, "99", 0},
		{"frame-cut-off", guest.Span(guest.FramesAt, 6), []byte{2, 200, 0, 0, 0, 1}, "cut off", 0},
		{"query-frame-in-handle", guest.Span(guest.FramesAt, 5), []byte{9, 0, 0, 0, 0}, "state", 0},
		{"two-replies", guest.Span(guest.FramesAt, 10), []byte{2, 0, 0, 0, 0, 2, 0, 0, 0, 0}, "reply", 0},
		{"tag-of-nothing", guest.Span(guest.FramesAt, 6), []byte{8, 1, 0, 0, 0, 'x'}, "tag", 0},
		{"reply-too-long", guest.Span(guest.FramesAt, uint32(len(huge))), huge, "limit", connect.CodeOutOfRange},
	} {
		t.Run(f.name, func(t *testing.T) {
			good := f.name + "-good"
			m := guest.Module{Good: good, Bad: f.name, Handle: f.handle, Frames: f.frames, MemoryPages: 8}
			if f.name == "span-outside" {
				m.MemoryPages = 0
			}
			s.upload(t, m)
			s.send(t, command(good, "neighbour", "go", ""))
			s.unchanged(t, []string{"counter", good, f.name}, func() {
				for range 3 { // retried, because the entity may be quarantined and its commands are then rejected
					r := command(f.name, "a", "go", "")
					r.CommandId = "same"
					_, err := s.call(t.Context(), r)
					if want := cmp.Or(f.code, connect.CodeInternal); connect.CodeOf(err) != want || !strings.Contains(err.Error(), f.say) {
						t.Errorf("got %v, want %v and a message with %q", err, want, f.say)
					}
				}
				res, err := s.call(t.Context(), &entityv1.QueryEntityRequest{EntityType: f.name, EntityId: "a", Query: "any"})
				if err == nil && res.(*entityv1.QueryEntityResponse).GetSequence() != 0 {
					t.Errorf("the entity is at %v", res)
				}
			})
			for _, neighbour := range []*entityv1.SendCommandRequest{command(good, "neighbour", "go", ""), command("counter", "neighbour", "add", `{"amount":1}`)} {
				s.send(t, neighbour)
			}
		})
	}
}

// TestDeadline checks that a command that takes longer than its deadline is
// still executed, and that resending it returns its reply.
func TestDeadline(t *testing.T) {
	s := start(t, testkit.NodeOptions{})
	s.upload(t, guest.Module{Good: "quick", Bad: "slow", Handle: guest.Count(20_000_000)})
	r := command("slow", "a", "go", "")
	r.CommandId = "once"
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.call(ctx, r); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Fatalf("got %v, want deadline_exceeded", err)
	}
	s.send(t, r)
	if res := s.send(t, r); !res.GetDuplicate() {
		t.Errorf("the second reply is no duplicate: %v", res)
	}
	s.send(t, command("quick", "a", "go", ""))
}
