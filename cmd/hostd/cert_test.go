package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
	"github.com/hostd/hostd/tests/support/testkit"
)

// Nodes and client commands accept the files that the commands of cert
// create.
func TestCreatedCertificatesAreAccepted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	if got := hostd(t, "cert", "create-node", "n1", "--host", "localhost", "--dir", dir); got.code != cli.ExitFailed || !strings.Contains(got.err, "create-ca") {
		t.Errorf("without an authority: %+v", got)
	}
	for _, args := range [][]string{{"create-ca"}, {"create-node", "n1", "--host", "localhost,127.0.0.1", "--host", "::1"}, {"create-client", "ann"}} {
		got := hostd(t, append(append([]string{"cert"}, args...), "--dir", dir, "-o", "json")...)
		var files struct{ Cert, Key string }
		if err := json.Unmarshal([]byte(got.out), &files); got.code != cli.ExitDone || err != nil {
			t.Fatalf("%q: %+v, %v", args, got, err)
		}
		if info, err := os.Stat(files.Key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%q: %v, %v", args, info, err)
		}
		again := hostd(t, append(append([]string{"cert"}, args...), "--dir", dir)...)
		if again.code != cli.ExitFailed || !strings.Contains(again.err, "are not overwritten") {
			t.Errorf("%q again: %+v", args, again)
		}
		before, err := os.ReadFile(files.Cert)
		if err != nil {
			t.Fatal(err)
		}
		kept := hostd(t, append(append([]string{"cert"}, args...), "--dir", dir, "--keep")...)
		if after, err := os.ReadFile(files.Cert); kept.code != cli.ExitDone || !strings.Contains(kept.out, files.Cert) || !bytes.Equal(before, after) {
			t.Errorf("%q with --keep: %+v, %v", args, kept, err)
		}
		if err := os.Rename(files.Key, files.Key+".away"); err != nil {
			t.Fatal(err)
		}
		if got := hostd(t, append(append([]string{"cert"}, args...), "--dir", dir, "--keep")...); got.code != cli.ExitFailed {
			t.Errorf("%q with --keep, without the key: %+v", args, got)
		}
		if err := os.Rename(files.Key+".away", files.Key); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"create-node", "n2"}, {"create-node", "../n2", "--host", "a"}, {"create-client", "A"}, {"create-node", "n2", "--host", "a:1"}} {
		if got := hostd(t, append(append([]string{"cert"}, args...), "--dir", dir)...); got.code == cli.ExitDone {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// TestRevocationListsAccumulate checks that each list contains the
// previous list's entries and has a higher number, and that nothing is written
// after an error.
func TestRevocationListsAccumulate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	for _, args := range [][]string{{"create-ca"}, {"create-node", "n1", "--host", "a"}, {"create-node", "n2", "--host", "a"}, {"create-client", "ann"}} {
		if got := hostd(t, append(append([]string{"cert"}, args...), "--dir", dir)...); got.code != cli.ExitDone {
			t.Fatalf("%q: %+v", args, got)
		}
	}
	list := filepath.Join(dir, "peers.crl")
	revoke := func(args ...string) (n, revoked int, err string) {
		t.Helper()
		got := hostd(t, append([]string{"cert", "revoke", "--dir", dir, "-o", "json"}, args...)...)
		var made struct {
			List            string
			Number, Revoked int
		}
		if got.code == cli.ExitDone {
			if err := json.Unmarshal([]byte(got.out), &made); err != nil || made.List != list {
				t.Fatalf("%q: %+v, %v", args, got, err)
			}
		}
		return made.Number, made.Revoked, got.err
	}
	for i, tt := range []struct {
		args    []string
		revoked int
	}{{nil, 0}, {[]string{"n1"}, 1}, {[]string{"n1"}, 1}, {[]string{filepath.Join(dir, "n2.crt"), "--out", list}, 2}, {[]string{"--valid-for", "1h"}, 2}} {
		if n, revoked, err := revoke(tt.args...); n != i+1 || revoked != tt.revoked {
			t.Errorf("%q: number %d with %d: %s", tt.args, n, revoked, err)
		}
	}
	before, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	for _, args := range [][]string{{"create-ca"}, {"create-node", "n1", "--host", "a"}} {
		hostd(t, append(append([]string{"cert"}, args...), "--dir", other)...)
	}
	for want, args := range map[string][]string{
		"client certificate": {filepath.Join(dir, "client.ann.crt")},
		"did not issue":      {filepath.Join(other, "n1.crt")},
		"create-node":        {"n3"},
		"in the past":        {"n1", "--valid-for", "-1h"},
		"no certificate":     {filepath.Join(dir, "n1.key.pem")},
	} {
		if want == "no certificate" {
			if err := os.WriteFile(args[0], []byte("-"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if n, _, err := revoke(args...); n != 0 || !strings.Contains(err, want) {
			t.Errorf("%q: number %d, %s", args, n, err)
		}
	}
	if got := hostd(t, "cert", "revoke", "--dir", other, "--out", list); got.code != cli.ExitFailed || !strings.Contains(got.err, "not signed") {
		t.Errorf("another authority's list: %+v", got)
	}
	if after, err := os.ReadFile(list); err != nil || string(after) != string(before) {
		t.Errorf("the list was changed by commands that failed: %v", err)
	}
}

// TestDevelopmentNodeWithTLS checks that a command needs only what dev prints
// and writes, and that commands fail without these values and files.
func TestDevelopmentNodeWithTLS(t *testing.T) {
	dir := t.TempDir()
	ports := filepath.Join(dir, "ports.json")
	testkit.ShareCache(t, filepath.Join(dir, "data", "n1"))
	for round := range 2 { // the second time with the first round's authority
		_ = os.Remove(ports)
		dev := start(t, "dev", "--tls", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--shards", "3", "--ports-file", ports, "--module", counterFile(t))
		node := dev.ready(t, ports)
		written, err := devcluster.ReadPorts(ports)
		if err != nil || written.TLS == nil || !strings.HasPrefix(node.API, "https://") {
			t.Fatalf("%+v, %v", written, err)
		}
		addr := []string{"--addr", node.API}
		if got := hostd(t, "entity", "ls", "counter", "--addr", node.API, "--cacert", written.CAFile); got.code != cli.ExitDone {
			t.Errorf("with the authority alone: %+v", got)
		}
		known := append(addr, "--cacert", written.TLS.CACert, "--cert", written.TLS.Cert, "--key", written.TLS.Key)
		if got := hostd(t, append([]string{"entity", "send", "counter", "a", "add", `{"amount":1}`}, known...)...); got.code != cli.ExitDone {
			t.Errorf("send: %+v", got)
		}
		if got := hostd(t, append([]string{"entity", "ls", "counter"}, known...)...); got.code != cli.ExitDone || !strings.Contains(got.out, "a") {
			t.Errorf("ls: %+v", got)
		}
		if got := hostd(t, append([]string{"entity", "ls", "counter"}, addr...)...); got.code != cli.ExitFailed || !strings.Contains(got.err, "--cacert") {
			t.Errorf("without its authority: %+v", got)
		}
		eventually(t, "dev says how to reach the node", func() bool { return strings.Contains(dev.err.String(), "HOSTD_CACERT="+written.TLS.CACert) })
		if key, err := os.ReadFile(written.TLS.Key); err != nil || strings.Contains(dev.err.String(), strings.Split(string(key), "\n")[1]) {
			t.Errorf("round %d: a key is printed, or not there: %v", round, err)
		}
		dev.interrupt()
		if code := dev.end(t); code != cli.ExitDone {
			t.Fatalf("dev ended with %d: %s", code, dev.err.String())
		}
	}
}
