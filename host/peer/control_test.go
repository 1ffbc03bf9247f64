package peer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
)

// control answers calls with the values of its fields.
type control struct {
	peer.NoControl
	err      error
	caller   peer.Hello
	report   coordinator.Report
	blobs    map[peer.Digest][]byte
	snapshot func(from sharding.NodeID, header []byte, body io.Reader) error
}

func (c *control) Probe(ctx context.Context) (*peerv1.ProbeResponse, error) {
	return &peerv1.ProbeResponse{ClusterId: "test", NodeId: "b"}, c.err
}

func (c *control) Join(ctx context.Context, r *peerv1.JoinRequest) (*peerv1.JoinResponse, error) {
	c.caller = peer.CallerOf(ctx)
	return &peerv1.JoinResponse{ClusterId: "test", MetaReplica: 7}, c.err
}

func (c *control) Propose(ctx context.Context, command []byte) ([]byte, error) {
	c.caller = peer.CallerOf(ctx)
	return append([]byte("did "), command...), c.err
}

func (c *control) ReadMeta(context.Context) (uint64, error) { return 42, c.err }

func (c *control) Report(_ context.Context, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error) {
	c.report = peer.DecodeReport(r)
	return &peerv1.ReportResponse{Transfers: []*peerv1.Transfer{{ShardId: 3, From: "a", To: "b"}}}, c.err
}

func (c *control) Prepare(_ context.Context, module peer.Digest, holder sharding.NodeID) error {
	if module != (peer.Digest{1}) || holder != "a" {
		return fmt.Errorf("%w: %x from %s", peer.ErrRefused, module, holder)
	}
	return c.err
}

func (c *control) OpenBlob(_ context.Context, module peer.Digest) (io.ReadCloser, int64, error) {
	blob, ok := c.blobs[module]
	if !ok {
		return nil, 0, fmt.Errorf("%w: module %x", peer.ErrNotFound, module[:4])
	}
	return io.NopCloser(bytes.NewReader(blob)), int64(len(blob)), nil
}

func (c *control) PutBlob(_ context.Context, module peer.Digest, size int64, blob io.Reader) error {
	data, err := io.ReadAll(blob)
	if err != nil {
		return err
	}
	c.blobs[module] = data
	return c.err
}

func (c *control) ReceiveSnapshot(_ context.Context, from sharding.NodeID, header []byte, body io.Reader) ([]byte, error) {
	return append([]byte("answer to "), header...), c.snapshot(from, header, body)
}

// pair returns a caller "a" and a node "b", which answers through a control.
func pair(t testing.TB, changes ...setup) (a, b *node, c *control) {
	c = &control{blobs: map[peer.Digest][]byte{}}
	a = start(t, network.TCP{}, "127.0.0.1:0", "a", changes...)
	b = start(t, network.TCP{}, "127.0.0.1:0", "b", func(o *peer.Options) { o.Control = c })
	connectAll(a, b)
	t.Cleanup(func() { a.stop(t); b.stop(t) })
	return a, b, c
}

func TestControlCalls(t *testing.T) {
	a, b, c := pair(t)
	ctx := t.Context()
	probed, err := a.Probe(ctx, b.addr)
	if err != nil || probed.NodeId != "b" || probed.ClusterId != "test" {
		t.Errorf("probe: %v, %v", probed, err)
	}
	joined, err := a.Join(ctx, b.addr, &peerv1.JoinRequest{Member: &peerv1.Member{NodeId: "a", Incarnation: 1}})
	if err != nil || joined.MetaReplica != 7 {
		t.Errorf("join: %v, %v", joined, err)
	}
	if _, err := a.Join(ctx, b.addr, &peerv1.JoinRequest{Member: &peerv1.Member{NodeId: "c", Incarnation: 1}}); !errors.Is(err, peer.ErrRefused) {
		t.Errorf("a node joined for another: %v", err)
	}
	result, err := a.Propose(ctx, "b", []byte("this"))
	if err != nil || string(result) != "did this" || c.caller != (peer.Hello{Cluster: "test", Node: "a", Incarnation: 1, Speaks: sharding.SupportedVersions}) {
		t.Errorf("propose: %q, %v, from %v", result, err, c.caller)
	}
	if index, err := a.ReadMeta(ctx, "b"); err != nil || index != 42 {
		t.Errorf("read: %d, %v", index, err)
	}
	if err := a.Prepare(ctx, "b", peer.Digest{1}, "a"); err != nil {
		t.Errorf("prepare: %v", err)
	}
	if err := a.Prepare(ctx, "b", peer.Digest{2}, "a"); !errors.Is(err, peer.ErrRefused) {
		t.Errorf("prepare of something else: %v", err)
	}
	want := coordinator.Report{
		Node: "a", Incarnation: 1, Seq: 2, View: 3, Replicas: 4, Draining: true,
		Shards: []coordinator.ShardReport{
			{
				Shard: 5, Replica: 6, Term: 7, Leader: true, Commit: 8, Applied: 9, Last: 10,
				Voters: []sharding.ReplicaID{11, 12}, Learners: []sharding.ReplicaID{13}, Outgoing: []sharding.ReplicaID{14},
				Match: map[sharding.ReplicaID]uint64{11: 1, 12: 2},
			},
			{Shard: 15, Replica: 16},
		},
	}
	answer, err := a.Report(ctx, "b", peer.EncodeReport(want))
	if ts := answer.GetTransfers(); err != nil || len(ts) != 1 || ts[0].GetShardId() != 3 || ts[0].GetFrom() != "a" || ts[0].GetTo() != "b" {
		t.Errorf("report: %v, %v", answer, err)
	}
	if !reflect.DeepEqual(c.report, want) {
		t.Errorf("reported %+v\nwanted %+v", c.report, want)
	}
	if _, err := a.Report(ctx, "b", &peerv1.ReportRequest{NodeId: "c", Incarnation: 1}); !errors.Is(err, peer.ErrRefused) {
		t.Errorf("a node reported for another: %v", err)
	}
}

// An error of a Control reaches the caller with the same meaning.
func TestErrorsKeepTheirMeaning(t *testing.T) {
	a, b, c := pair(t)
	for _, sentinel := range []error{
		peer.ErrWrongCluster, peer.ErrWrongNode, peer.ErrOldIncarnation, peer.ErrFormat, peer.ErrUnavailable,
		peer.ErrRefused, peer.ErrNotFound, peer.ErrTooLarge, peer.ErrUnknownOutcome,
	} {
		c.err = fmt.Errorf("because: %w", sentinel)
		_, err := a.Propose(t.Context(), "b", nil)
		if !errors.Is(err, sentinel) {
			t.Errorf("%v became %v", c.err, err)
		}
	}
	c.err = errors.New("anything else")
	if _, err := a.Propose(t.Context(), "b", nil); !errors.Is(err, peer.ErrUnknownOutcome) {
		t.Errorf("%v became %v", c.err, err)
	}
	c.err = fmt.Errorf("propose: %w", &sharding.NotLeaderError{Shard: 3, Term: 4, Leader: "a"})
	_, err := a.Propose(t.Context(), "b", nil)
	var elsewhere *peer.NotLeaderError
	var plain *sharding.NotLeaderError
	if !errors.As(err, &elsewhere) || elsewhere.Address != a.addr || elsewhere.Leader != "a" || elsewhere.Shard != 3 || elsewhere.Term != 4 {
		t.Errorf("%v became %v, %+v", c.err, err, elsewhere)
	}
	if !errors.As(err, &plain) || errors.Is(err, peer.ErrUnknownOutcome) {
		t.Errorf("%v is no *sharding.NotLeaderError", err)
	}
	if _, err := a.Propose(t.Context(), "nobody", nil); !errors.Is(err, peer.ErrUnreachable) || !errors.Is(err, peer.ErrUnavailable) {
		t.Errorf("propose to nobody: %v", err)
	}
	if _, err := a.Propose(t.Context(), "b", make([]byte, 5<<20)); !errors.Is(err, peer.ErrTooLarge) {
		t.Errorf("propose of 5 MiB: %v", err)
	}
	free := start(t, network.TCP{}, "127.0.0.1:0", "free")
	free.stop(t) // the port is free: nothing listens there any more
	a.SetAddresses(map[sharding.NodeID]string{"b": b.addr, "free": free.addr})
	if _, err := a.Propose(t.Context(), "free", nil); !errors.Is(err, peer.ErrUnreachable) {
		t.Errorf("propose to a closed port: %v", err)
	}
}

func TestModulesAreTransferredWhole(t *testing.T) {
	a, _, c := pair(t)
	rng := rand.NewChaCha8([32]byte{1})
	for _, size := range []int{0, 1, 256<<10 - 1, 256 << 10, 256<<10 + 1, 5 << 20} {
		blob := make([]byte, size)
		rng.Read(blob)
		digest := sha256.Sum256(blob)
		if err := a.PutBlob(t.Context(), "b", digest, int64(size), bytes.NewReader(blob)); err != nil {
			t.Errorf("put %d bytes: %v", size, err)
		}
		if !bytes.Equal(c.blobs[digest], blob) {
			t.Errorf("%d bytes put, %d stored", size, len(c.blobs[digest]))
		}
		var got bytes.Buffer
		if n, err := a.GetBlob(t.Context(), "b", digest, &got); err != nil || n != int64(size) || !bytes.Equal(got.Bytes(), blob) {
			t.Errorf("get %d bytes: %d, %v", size, n, err)
		}
	}
	if _, err := a.GetBlob(t.Context(), "b", peer.Digest{9}, io.Discard); !errors.Is(err, peer.ErrNotFound) {
		t.Errorf("get an unknown module: %v", err)
	}
	if err := a.PutBlob(t.Context(), "b", peer.Digest{9}, 3, bytes.NewReader([]byte("abc"))); !errors.Is(err, peer.ErrRefused) || c.blobs[peer.Digest{9}] != nil {
		t.Errorf("put of bytes with another digest: %v", err)
	}
	c.blobs[peer.Digest{8}] = []byte("other bytes")
	if _, err := a.GetBlob(t.Context(), "b", peer.Digest{8}, io.Discard); !errors.Is(err, peer.ErrRefused) {
		t.Errorf("get of bytes with another digest: %v", err)
	}
	if err := a.PutBlob(t.Context(), "b", sha256.Sum256([]byte("abc")), 2, bytes.NewReader([]byte("abc"))); !errors.Is(err, peer.ErrTooLarge) {
		t.Errorf("put of more than was announced: %v", err)
	}
	if err := a.PutBlob(t.Context(), "b", peer.Digest{}, peer.MaxBlobBytes+1, nil); !errors.Is(err, peer.ErrTooLarge) {
		t.Errorf("put of too much: %v", err)
	}
}

func TestSnapshotsAreTransferredWhole(t *testing.T) {
	a, _, c := pair(t)
	body := make([]byte, 3<<20+7)
	rand.NewChaCha8([32]byte{2}).Read(body)
	c.snapshot = func(from sharding.NodeID, header []byte, r io.Reader) error {
		got, err := io.ReadAll(r)
		if err == nil && (from != "a" || string(header) != "header" || !bytes.Equal(got, body)) {
			t.Errorf("from %s, header %q, %d bytes", from, header, len(got))
		}
		return err
	}
	for range 3 {
		if answer, err := a.SendSnapshot(t.Context(), "b", []byte("header"), bytes.NewReader(body)); err != nil || string(answer) != "answer to header" {
			t.Errorf("send: %q, %v", answer, err)
		}
	}
	if _, err := a.SendSnapshot(t.Context(), "b", make([]byte, 64<<10+1), nil); !errors.Is(err, peer.ErrTooLarge) {
		t.Errorf("a header of 64 KiB and a byte: %v", err)
	}
	c.snapshot = func(sharding.NodeID, []byte, io.Reader) error { return fmt.Errorf("%w: stale", peer.ErrRefused) }
	if _, err := a.SendSnapshot(t.Context(), "b", nil, bytes.NewReader(body)); !errors.Is(err, peer.ErrRefused) {
		t.Errorf("refused: %v", err)
	}
	c.snapshot = func(sharding.NodeID, []byte, io.Reader) error { return nil }
	if _, err := a.SendSnapshot(t.Context(), "b", nil, bytes.NewReader(body)); !errors.Is(err, peer.ErrUnknownOutcome) {
		t.Errorf("taken without being read: %v", err)
	}
}

// A snapshot whose sender fails midway never looks complete.
func TestTruncatedSnapshotIsIncomplete(t *testing.T) {
	a, _, c := pair(t)
	seen := make(chan error, 1)
	c.snapshot = func(_ sharding.NodeID, _ []byte, r io.Reader) error {
		_, err := io.ReadAll(r)
		seen <- err
		return err
	}
	broken := errors.New("the disk broke")
	body := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), iotest.ErrReader(broken))
	if _, err := a.SendSnapshot(t.Context(), "b", nil, body); !errors.Is(err, broken) {
		t.Errorf("send: %v", err)
	}
	if err := <-seen; err == nil {
		t.Error("the receiver took half a snapshot for a whole one")
	}
}

func TestSnapshotsAreBounded(t *testing.T) {
	a, _, c := pair(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	c.snapshot = func(_ sharding.NodeID, _ []byte, r io.Reader) error {
		entered <- struct{}{}
		<-leave
		_, err := io.Copy(io.Discard, r)
		return err
	}
	done := make(chan error)
	for range 2 {
		go func() { _, err := a.SendSnapshot(t.Context(), "b", nil, bytes.NewReader(nil)); done <- err }()
		<-entered
	}
	if _, err := a.SendSnapshot(t.Context(), "b", nil, bytes.NewReader(nil)); !errors.Is(err, peer.ErrUnavailable) {
		t.Errorf("a third at a time: %v", err)
	}
	close(leave)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Closing a node ends the transfers that it receives, however slow the sender
// is.
func TestCloseEndsTransfers(t *testing.T) {
	c := &control{}
	seen := make(chan error, 1)
	c.snapshot = func(_ sharding.NodeID, _ []byte, r io.Reader) error {
		seen <- nil
		_, err := io.ReadAll(r)
		seen <- err
		return err
	}
	a := start(t, network.TCP{}, "127.0.0.1:0", "a")
	defer a.stop(t)
	b := start(t, network.TCP{}, "127.0.0.1:0", "b", func(o *peer.Options) { o.Control = c })
	connectAll(a, b)
	body, feed := io.Pipe()
	sent := make(chan error, 1)
	go func() { _, err := a.SendSnapshot(t.Context(), "b", []byte("x"), body); sent <- err }()
	feed.Write(make([]byte, 300<<10))
	<-seen
	began := time.Now()
	b.stop(t)
	if err := <-seen; err == nil {
		t.Error("the receiver took half a snapshot for a whole one")
	}
	feed.CloseWithError(io.EOF)
	if err := <-sent; err == nil {
		t.Error("the sender was told that it was taken")
	}
	t.Logf("closed after %v", time.Since(began))
}

// clusterVersion is the version of a cluster.
type clusterVersion struct{ atomic.Uint32 }

func (v *clusterVersion) ClusterVersion() sharding.ClusterVersion {
	return sharding.ClusterVersion(v.Load())
}

// A cluster rejects a node that does not support its version, and such a node
// rejects that cluster's answers.
func TestNodeOfUnsupportedVersionIsRejected(t *testing.T) {
	var version clusterVersion
	version.Store(1)
	at := func(o *peer.Options) { o.Metadata = &version }
	c := &control{blobs: map[peer.Digest][]byte{}}
	a := start(t, network.TCP{}, "127.0.0.1:0", "a", at)
	b := start(t, network.TCP{}, "127.0.0.1:0", "b", at, func(o *peer.Options) { o.Control = c })
	connectAll(a, b)
	t.Cleanup(func() { a.stop(t); b.stop(t) })

	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	// The headers of the first release, and of a release without version 1.
	call := func(format, levels string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+b.addr+"/hostd.peer.v1.PeerService/ReadMeta", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{
			"Content-Type": "application/json", "Hostd-Format": format, "Hostd-Cluster": "test", "Hostd-Node": "c", "Hostd-Incarnation": "1",
		} {
			r.Header.Set(k, v)
		}
		if levels != "" {
			r.Header.Set("Hostd-Levels", levels)
		}
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Header.Get("Hostd-Format") + " " + res.Header.Get("Hostd-Levels"); got != "1 1-3" {
			t.Errorf("b says that it speaks %s", got)
		}
		return string(text)
	}
	for _, tt := range []struct {
		at             uint32
		format, levels string
		want           string // if empty, the call must be answered
	}{
		{1, "1", "", ""}, {1, "1", "1-2", ""}, {1, "2", "2-3", "cluster is at version 1, node c supports cluster versions 2 to 3"},
		{2, "1", "", "cluster is at version 2, node c supports cluster version 1"}, {2, "1", "1-2", ""}, {2, "2", "2-3", ""},
	} {
		version.Store(tt.at)
		got := call(tt.format, tt.levels)
		if answered := strings.Contains(got, `"index"`); answered != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("level %d, format %s, levels %q: %s", tt.at, tt.format, tt.levels, got)
		}
	}
	version.Store(2)
	if _, err := a.ReadMeta(t.Context(), "b"); err != nil {
		t.Errorf("among nodes of this release: %v", err)
	}
	if said, ok := a.Speaks("b"); !ok || said != sharding.SupportedVersions {
		t.Errorf("b speaks %v, %v", said, ok)
	}
}
