package cluster

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestLargestModule uploads a module of almost the largest size that
// max-module-bytes allows. All nodes serve it, and each returns its bytes.
func TestLargestModule(t *testing.T) {
	padding := make([]byte, 28<<20)
	rand.NewChaCha8([32]byte{}).Read(padding)
	section := append([]byte("\x07padding"), padding...)
	wasm := append(bytes.Clone(testkit.BuildExample(t, "counter")), 0) // a custom section
	wasm = append(binary.AppendUvarint(wasm, uint64(len(section))), section...)

	cluster := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 6, Flags: []string{"--max-module-bytes", "32MiB"}})
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	up, err := c.Upload(t.Context(), wasm, true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		if _, err := c.Send(t.Context(), client.Command{EntityType: "counter", EntityID: fmt.Sprint("c", i), Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for i, node := range cluster.Nodes() {
		if got, err := node.Client(client.Options{Timeout: testkit.Patience}).Download(t.Context(), up.Digest); err != nil || !bytes.Equal(got, wasm) {
			t.Errorf("node %d returns %d bytes of %d: %v", i, len(got), len(wasm), err)
		}
	}
}
