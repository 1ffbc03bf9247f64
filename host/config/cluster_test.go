package config_test

import (
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/config"
)

func TestSeedsAreListOrCommaSeparated(t *testing.T) {
	want := []string{"a.example:7070", "srv+_hostd._tcp.example"}
	for _, src := range []config.Sources{
		{File: file(t, "seeds: [a.example:7070, 'srv+_hostd._tcp.example']\n")},
		{File: file(t, "seeds:\n  - a.example:7070\n  - srv+_hostd._tcp.example\n")},
		{File: file(t, "seeds: a.example:7070, srv+_hostd._tcp.example\n")},
		{LookupEnv: env(map[string]string{"HOSTD_SEEDS": "a.example:7070,srv+_hostd._tcp.example,"})},
		{File: file(t, "seeds: [b:1, c:2]\n"), Flags: map[string]string{"seeds": "a.example:7070,srv+_hostd._tcp.example"}},
	} {
		c, err := config.Load(src)
		if err != nil || !slices.Equal(c.Seeds, want) {
			t.Errorf("%+v: got %q, %v", src, c.Seeds, err)
		}
	}
	for _, text := range []string{"seeds: [[a:1]]\n", "seeds: ['a:1,b:2']\n", "seeds: {a: 1}\n"} {
		if _, err := config.Load(config.Sources{File: file(t, text)}); err == nil || !strings.Contains(err.Error(), "single value") {
			t.Errorf("%q: got %v", text, err)
		}
	}
	many := strings.Repeat("a:1,", 65)
	for _, bad := range []string{"a", ":1", "a:0", "a:65536", "a:http", "http://a:1", "srv+", "srv+a:1", many} {
		if _, err := config.Load(config.Sources{Flags: map[string]string{"seeds": bad}}); err == nil || !strings.Contains(err.Error(), "seeds: ") {
			t.Errorf("%.20q: got %v", bad, err)
		}
	}
}

// An advertised address needs the same protection as an address to listen on.
func TestAdvertisedAddress(t *testing.T) {
	for _, tt := range []struct {
		listen, advertise, seeds string
		insecure, ok             bool
	}{
		{"127.0.0.1:1", "127.0.0.1:2", "", false, true},
		{"127.0.0.1:1", "localhost:2", "", false, true},
		{"127.0.0.1:1", "10.0.0.1:2", "", false, false},
		{"127.0.0.1:1", "node.example:2", "", false, false},
		{"127.0.0.1:1", "node.example:2", "", true, true},
		{"127.0.0.1:1", "node.example", "", true, false},
		{"0.0.0.0:1", "", "", true, true},           // a single node that no other node needs to reach
		{"0.0.0.0:1", "", "b:1", true, false},       // other nodes would get 0.0.0.0
		{"0.0.0.0:1", "0.0.0.0:1", "", true, false}, // names no host
		{"0.0.0.0:1", ":1", "", true, false},
		{"0.0.0.0:1", "10.0.0.1:1", "b:1", true, true},
	} {
		c := config.Default()
		c.Listen, c.Advertise, c.InsecureListen = tt.listen, tt.advertise, tt.insecure
		if tt.seeds != "" {
			c.Seeds = []string{tt.seeds}
		}
		if err := c.Validate(); (err == nil) != tt.ok {
			t.Errorf("%+v: got %v", tt, err)
		}
	}
	listening := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}
	for advertise, want := range map[string]string{"": "127.0.0.1:7", "a:9": "a:9", "a:0": "a:7", "[::1]:0": "[::1]:7"} {
		c := config.Config{Advertise: advertise}
		if got := c.Addr(listening); got != want {
			t.Errorf("advertise %q: got %s, want %s", advertise, got, want)
		}
	}
	c := config.Default()
	if c.Advertise = "10.0.0.1:1"; c.Loopback() {
		t.Error("a node that is advertised to others counts as loopback")
	}
}

// TestPeerListener checks the peer listener's address and the advertised one.
func TestPeerListener(t *testing.T) {
	for _, tt := range []struct {
		listen, peerListen, advertise, peerAdvertise, seeds string
		insecure                                            bool
		fault                                               string
	}{
		{listen: "127.0.0.1:1", peerListen: "127.0.0.2:9"},
		{listen: "127.0.0.1:1", peerListen: "10.0.0.1:2", fault: "peer-listen: 10.0.0.1 is not"},
		{listen: "127.0.0.1:1", peerListen: "10.0.0.1:2", insecure: true},
		{listen: "127.0.0.1:1", peerListen: "10.0.0.1", insecure: true, fault: "peer-listen: must be HOST:PORT"},
		{listen: "127.0.0.1:1", peerAdvertise: "10.0.0.1:2", fault: "peer-advertise: 10.0.0.1 is not"},
		{listen: "127.0.0.1:1", peerAdvertise: "0.0.0.0:2", insecure: true, fault: "must name a host"},
		{listen: "127.0.0.1:1", peerListen: "0.0.0.0:2", seeds: "b:1", insecure: true, fault: "peer-advertise: must be set"},
		{listen: "127.0.0.1:1", peerListen: "0.0.0.0:2", seeds: "b:1", peerAdvertise: "a:2", insecure: true},
		{listen: "127.0.0.1:1", peerListen: "0.0.0.0:2", seeds: "b:1", advertise: "a:1", insecure: true},
		{listen: "127.0.0.1:65535", fault: "peer-listen: must be set"},
		{listen: "127.0.0.1:http", fault: "peer-listen: must be set"},
		{listen: "127.0.0.1:65535", peerListen: "127.0.0.1:0"},
	} {
		c := config.Default()
		c.Listen, c.PeerListen, c.Advertise, c.PeerAdvertise, c.InsecureListen, c.InsecurePeers = tt.listen, tt.peerListen, tt.advertise, tt.peerAdvertise, tt.insecure, tt.insecure
		if tt.seeds != "" {
			c.Seeds = []string{tt.seeds}
		}
		err := c.Validate()
		if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%+v: got %v", tt, err)
		}
		if err == nil && c.Loopback() == tt.insecure {
			t.Errorf("%+v: loopback is %v", tt, c.Loopback())
		}
	}
	clients := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 70}
	for _, tt := range []struct{ listen, peerListen, seeds, want string }{
		{"127.0.0.1:70", "127.0.0.1:9", "", "127.0.0.1:9"},
		{"127.0.0.1:0", "", "", "127.0.0.1:0"},
		{"127.0.0.1:70", "", "", "127.0.0.1:71 127.0.0.1:72"},
		{"127.0.0.1:70", "", "127.0.0.1:71,127.0.0.1:73", "127.0.0.1:72 127.0.0.1:74"},
		{"127.0.0.1:70", "", "127.0.0.1:71,127.0.0.2:71", "127.0.0.1:71 127.0.0.1:72"},
		{"10.0.0.1:70", "", "10.0.0.1:71", "10.0.0.1:71"},
		{":70", "", "", ":71"},
	} {
		c := config.Config{Listen: tt.listen, PeerListen: tt.peerListen, Seeds: strings.Split(tt.seeds, ",")}
		got := c.PeerListens(clients)
		if got = got[:min(2, len(got))]; strings.Join(got, " ") != tt.want {
			t.Errorf("%+v: got %q", tt, got)
		}
		left := ""
		if strings.HasPrefix(tt.seeds, "127.0.0.1:71") && !strings.Contains(tt.seeds, "127.0.0.2") {
			left = "127.0.0.1:71"
		}
		if got := c.SkippedPeerListen(clients); got != left {
			t.Errorf("%+v: %q is left to another node", tt, got)
		}
	}
	listening := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8}
	for _, tt := range []struct{ advertise, peerAdvertise, want string }{
		{"", "", "127.0.0.1:8"}, {"a:9", "", "a:8"}, {"a:0", "", "a:8"}, {"a:9", "b:7", "b:7"}, {"a:9", "b:0", "b:8"}, {"[::1]:9", "", "[::1]:8"},
	} {
		c := config.Config{Advertise: tt.advertise, PeerAdvertise: tt.peerAdvertise}
		if got := c.PeerAddr(listening); got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
}

func TestRoles(t *testing.T) {
	for _, tt := range []struct {
		flags map[string]string
		ok    bool
		proxy bool
	}{
		{map[string]string{"roles": "host"}, true, false},
		{map[string]string{"roles": "proxy", "seeds": "a:1"}, true, true},
		{map[string]string{"roles": "proxy"}, false, false},
		{map[string]string{"roles": "proxy", "seeds": "a:1", "bootstrap": "true"}, false, false},
		{map[string]string{"roles": "host,proxy", "seeds": "a:1"}, false, false},
		{map[string]string{"roles": "", "seeds": "a:1"}, false, false},
		{map[string]string{"roles": "voter", "seeds": "a:1"}, false, false},
	} {
		c, err := config.Load(config.Sources{Flags: tt.flags})
		if (err == nil) != tt.ok || c.Proxy() != tt.proxy {
			t.Errorf("%v: got %v, %v", tt.flags, c.Roles, err)
		}
	}
}

func TestGossipKey(t *testing.T) {
	var none config.Config
	if key, err := none.GossipKey(); key != nil || err != nil {
		t.Errorf("without a file: %q, %v", key, err)
	}
	secret := "0123456789abcdef0123456789abcdef"
	good := base64.StdEncoding.EncodeToString([]byte(secret))
	for text, ok := range map[string]bool{
		good + "\n": true, good: true, good[:24] + "\n": false, good + good: false, "not base64!": false, "": false,
		base64.StdEncoding.EncodeToString([]byte(secret[:16])): true,
		base64.StdEncoding.EncodeToString([]byte(secret[:17])): false,
	} {
		c := config.Config{GossipKeyFile: filepath.Join(t.TempDir(), "key")}
		if err := os.WriteFile(c.GossipKeyFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := c.GossipKey()
		if (err == nil) != ok || ok && !strings.HasPrefix(secret, string(key)) {
			t.Errorf("%q: got %q, %v", text, key, err)
		}
		if err != nil && text != "" && strings.Contains(err.Error(), text[:min(8, len(text))]) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
	absent := config.Config{GossipKeyFile: filepath.Join(t.TempDir(), "absent")}
	if _, err := absent.GossipKey(); err == nil || !strings.Contains(err.Error(), "gossip-key-file") {
		t.Errorf("an absent file: %v", err)
	}
}

// TestHosts: a node that only this machine can reach accepts only its own
// names. Any other node accepts any name, unless allow-hosts is set.
func TestHosts(t *testing.T) {
	for _, tt := range []struct {
		listen, advertise, allow, want string
	}{
		{"127.0.0.1:7070", "", "", "localhost 127.0.0.1"},
		{"localhost:7070", "", "Dev.Example", "localhost dev.example localhost"},
		{"127.0.0.1:7070", "localhost:7070", "", "localhost 127.0.0.1 localhost"},
		{"0.0.0.0:7070", "n1.example:7070", "", ""},
		{"0.0.0.0:7070", "N1.example:7070", "lb.example", "localhost lb.example 0.0.0.0 n1.example"},
	} {
		c := config.Default()
		c.Listen, c.Advertise, c.InsecureListen = tt.listen, tt.advertise, true
		if tt.allow != "" {
			c.AllowHosts = strings.Split(tt.allow, ",")
		}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		if got := strings.Join(c.Hosts(), " "); got != tt.want {
			t.Errorf("%s %s %s: %q, want %q", tt.listen, tt.advertise, tt.allow, got, tt.want)
		}
	}
	for _, name := range []string{"a:1", "http://a", "*.a", "[::1]", strings.Repeat("x", 257)} {
		c := config.Default()
		c.AllowHosts = []string{name}
		if err := c.Validate(); err == nil {
			t.Errorf("%.20q is taken", name)
		}
	}
}

// TestBootstrapExpectSetsMinMembers: a cluster with bootstrap-expect places
// shards only on that many nodes, unless min-members is set.
func TestBootstrapExpectSetsMinMembers(t *testing.T) {
	for _, tt := range []struct{ members, expect, replication, want int }{
		{0, 0, 3, 1}, {0, 1, 3, 1}, {0, 2, 3, 2}, {0, 3, 3, 3}, {0, 9, 3, 3}, {0, 9, 5, 5}, {0, 3, 1, 1},
		{1, 3, 3, 1}, {2, 3, 3, 2}, {5, 3, 3, 5}, {4, 0, 3, 4},
	} {
		c := config.Default()
		if c.MinMembers != 0 {
			t.Fatalf("min-members is %d by default", c.MinMembers)
		}
		c.MinMembers, c.BootstrapExpect, c.Replication = tt.members, tt.expect, tt.replication
		if got := c.MinHosts(); got != tt.want {
			t.Errorf("min-members %d, bootstrap-expect %d, replication %d: placed from %d on, want %d", tt.members, tt.expect, tt.replication, got, tt.want)
		}
	}
}
