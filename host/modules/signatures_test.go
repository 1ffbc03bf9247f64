package modules

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// signedWorld is a node of a cluster that serves one type with a module that
// the node does not have.
type signedWorld struct {
	t     *testing.T
	state *meta.State
	key   ed25519.PrivateKey
	trust *signing.Trust
	types *Types
	mod   meta.Module
}

// localMetadata is the metadata of a node that has applied all of it.
type localMetadata struct {
	*meta.State
	behind func() error // called to catch up; may be nil
}

func (m *localMetadata) CatchUp(context.Context) error {
	if m.behind == nil {
		return nil
	}
	return m.behind()
}

// nobody are the members of a cluster with one node.
type nobody struct{}

func (nobody) Others() []sharding.NodeID { return nil }

// roomyDisk is a disk with room.
type roomyDisk struct{}

func (roomyDisk) ReadOnly() bool { return false }

func newSignedWorld(t *testing.T, mode signing.Mode) *signedWorld {
	t.Helper()
	w := &signedWorld{t: t, state: meta.New(), key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))}
	line, err := signing.Line("release", w.key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "trust")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	if w.trust, err = signing.Open(signing.Options{Mode: mode, File: file, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	files, err := guest.OpenRegistry(guest.RegistryOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	d := &Distribution{
		self: "n1", metadata: &localMetadata{State: w.state}, members: nobody{}, files: files, trust: w.trust, logger: logger,
	}
	w.types = newTypes(cluster.NewMetadata(w.state, 0), newShardKeys(1, w.state), newSettings(), d, abi.DefaultLimits(), new(GuestLines), logger)
	w.mod = meta.Module{Digest: meta.Digest{1}, Size: 1, Name: "m", Version: "1", EntityTypes: []string{"a"}, UploadedAt: 1}
	w.do(meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: 1, CreatedAt: 1}, meta.Member{Node: "n1", Address: "a:1", Status: meta.StatusUp, Speaks: sharding.SupportedVersions}),
		meta.PutModule(w.mod), meta.Bind("a", w.mod.Digest, 1))
	return w
}

func (w *signedWorld) do(commands ...[]byte) {
	w.t.Helper()
	for _, c := range commands {
		_, result, err := w.state.Apply(w.state.View().Index()+1, c)
		if err == nil {
			_, err = meta.DecodeResult(result)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// sign stores a signature of the module by a key.
func (w *signedWorld) sign(key ed25519.PrivateKey) {
	w.t.Helper()
	m := w.mod
	m.Signature = signing.Sign(statement(m), key)
	w.do(meta.PutModule(m))
}

func stranger() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
}

// TestUnsignedTypesAreNotServed checks that a type whose module is not signed
// is skipped until the module is signed, and that this delays neither the node
// nor later activations.
func TestUnsignedTypesAreNotServed(t *testing.T) {
	w := newSignedWorld(t, signing.Require)
	if err := w.types.Refresh(t.Context()); err != nil {
		t.Fatalf("an unsigned module is a fault of loading: %v", err)
	}
	if err := w.types.Await(t.Context(), w.state.View().Revision()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key    ed25519.PrivateKey
		reason signing.Reason
	}{{nil, signing.Missing}, {stranger(), signing.Untrusted}} {
		if c.key != nil {
			w.sign(c.key)
			if !w.types.needsSignatureCheck(w.state.View()) {
				t.Error("another signature is not noticed")
			}
			if err := w.types.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if u := w.types.UnsignedTypes(); len(u) != 1 || u[0] != (Unsigned{"a", journal.Digest{1}, c.reason, true}) {
			t.Errorf("not served for %+v, want reason %s", u, c.reason)
		}
		if w.types.needsSignatureCheck(w.state.View()) {
			t.Error("the same signature is judged again")
		}
	}
	w.sign(w.key)
	// The type would be served now, but this node does not have the module.
	if err := w.types.Refresh(t.Context()); !errors.Is(err, request.ErrModuleNotLoaded) || len(w.types.UnsignedTypes()) != 0 {
		t.Errorf("signed: %v, %+v", err, w.types.UnsignedTypes())
	}
}

func TestUnsignedTypesAreWarnedAbout(t *testing.T) {
	w := newSignedWorld(t, signing.Warn)
	if err := w.types.Refresh(t.Context()); !errors.Is(err, request.ErrModuleNotLoaded) {
		t.Errorf("the module is not loaded: %v", err)
	}
	if u := w.types.UnsignedTypes(); len(u) != 1 || u[0].Refused {
		t.Errorf("told of: %+v", u)
	}
}

func TestPrepareRequiresSignature(t *testing.T) {
	for _, mode := range []signing.Mode{signing.Off, signing.Warn, signing.Require} {
		w := newSignedWorld(t, mode)
		prepared := func() error { return w.types.modules.Prepare(t.Context(), journal.Digest{1}, "") }
		for _, c := range []struct {
			sign   func()
			refuse error
		}{
			{func() {}, peer.ErrSignatureMissing},
			{func() { w.sign(stranger()) }, peer.ErrSignatureUntrusted},
			{func() {
				bad := w.mod
				bad.Signature = signing.Sign(signing.Statement{Name: "other"}, w.key)
				w.do(meta.PutModule(bad))
			}, peer.ErrSignatureBad},
			{func() { w.sign(w.key) }, nil},
		} {
			c.sign()
			want := c.refuse
			if mode != signing.Require || want == nil {
				want = request.ErrModuleNotLoaded // the check continues, and finds no module
			}
			if err := prepared(); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", mode, err, want)
			}
		}
	}
}

// TestUploadSignatureIsCheckedFirst checks that an upload whose signature
// cannot be trusted is rejected before anything else, and that a trusted
// signature is not replaced by an untrusted signature.
func TestUploadSignatureIsCheckedFirst(t *testing.T) {
	w := newSignedWorld(t, signing.Require)
	s := &Service{engine: (*guest.Engine)(nil), modules: w.types.modules, metadata: w.types.metadata, disk: roomyDisk{}}
	for _, signature := range [][]byte{nil, {1, 2}, signing.Sign(statement(w.mod), stranger())} {
		var refused *signatureError
		if _, err := s.Upload(t.Context(), Upload{Wasm: []byte("x"), Signature: signature}); !errors.As(err, &refused) {
			t.Errorf("signature %x: %v", signature, err)
		}
	}
	good, other := signing.Sign(statement(w.mod), w.key), signing.Sign(statement(w.mod), stranger())
	for _, c := range []struct{ before, brought, want []byte }{
		{nil, nil, nil}, {nil, other, other}, {nil, good, good}, {other, nil, other}, {other, good, good}, {good, other, good}, {good, nil, good},
	} {
		w := newSignedWorld(t, signing.Warn)
		m := w.mod
		if m.Signature = c.before; c.before != nil {
			w.do(meta.PutModule(m))
		}
		s := &Service{modules: w.types.modules, metadata: w.types.metadata}
		if got := s.betterSignature(w.mod, c.brought); !bytes.Equal(got, c.want) {
			t.Errorf("%x and %x: %x", c.before, c.brought, got)
		}
	}
}
