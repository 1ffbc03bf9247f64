package membership

import (
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata")

func example() nodeMeta {
	return nodeMeta{node: "n1", incarnation: 0x0102030405060708, address: "10.0.0.1:7070", cluster: "c5ghj2", disk: "d7"}
}

func TestNodeMetaFormat(t *testing.T) {
	leaving := example()
	leaving.leaving, leaving.cluster = true, ""
	a := example()
	got := "a member\n" + hex.Dump(a.encode()) + "of no cluster, leaving\n" + hex.Dump(leaving.encode()) + "name\n" + a.name() + "\n"
	const name = "testdata/about.txt"
	if *rewrite {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the format changed:\n%s\nwanted\n%s", got, want)
	}
	for _, a := range []nodeMeta{example(), leaving} {
		if back, err := decodeMeta(a.encode()); err != nil || back != a {
			t.Errorf("%+v becomes %+v, %v", a, back, err)
		}
		if back, err := decodeMeta(append(a.encode(), "of a later version"...)); err != nil || back != a {
			t.Errorf("%+v and more becomes %+v, %v", a, back, err)
		}
	}
}

// The largest node metadata fits into memberlist's limit.
func TestNodeMetaFitsIntoMemberlist(t *testing.T) {
	a := nodeMeta{
		node: sharding.NodeID(strings.Repeat("n", maxNodeBytes)), incarnation: 1<<64 - 1,
		address: strings.Repeat("a", maxAddressBytes-6) + ":65535",
		cluster: strings.Repeat("c", maxIDBytes), disk: strings.Repeat("d", maxIDBytes),
	}
	b := a.encode()
	if back, err := decodeMeta(b); err != nil || back != a || len(b) > 414 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestMalformedNodeMetaIsRejected(t *testing.T) {
	a := example()
	good := a.encode()
	for i := range good {
		if _, err := decodeMeta(good[:i]); !errors.Is(err, errMalformed) {
			t.Errorf("%d bytes of %d: %v", i, len(good), err)
		}
	}
	for name, change := range map[string]func(a *nodeMeta){
		"no node":     func(a *nodeMeta) { a.node = "" },
		"incarnation": func(a *nodeMeta) { a.incarnation = 0 },
		"address":     func(a *nodeMeta) { a.address = "10.0.0.1" },
		"no host":     func(a *nodeMeta) { a.address = ":7" },
		"port":        func(a *nodeMeta) { a.address = "h:0" },
		"long node":   func(a *nodeMeta) { a.node = sharding.NodeID(strings.Repeat("n", maxNodeBytes+1)) },
		"long disk":   func(a *nodeMeta) { a.disk = strings.Repeat("n", maxIDBytes+1) },
	} {
		a := example()
		change(&a)
		if _, err := decodeMeta(a.encode()); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good[0] = 2
	if _, err := decodeMeta(good); !errors.Is(err, errMalformed) {
		t.Errorf("version 2: %v", err)
	}
}

func FuzzNodeMeta(f *testing.F) {
	a := example()
	f.Add(a.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeMeta(b)
		if err != nil {
			return
		}
		if back, err := decodeMeta(a.encode()); err != nil || back != a {
			t.Errorf("%+v becomes %+v, %v", a, back, err)
		}
	})
}
