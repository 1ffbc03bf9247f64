package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	testVersion = "9.8.7"
	testCommit  = "0123456789abcdef0123456789abcdef01234567"
)

// tested are the pairs of system and architecture that the test builds. The
// cost of each is mostly compression.
var tested = []string{"linux/amd64", "windows/arm64"}

// made builds a release from the sources below root. Only the program for this
// machine is compiled; it also stands in for the other pair, because compiling
// takes minutes.
func made(t *testing.T, root, key string) *release {
	t.Helper()
	r := &release{
		root: root, out: t.TempDir(), version: testVersion, commit: testCommit, date: time.Date(2026, 11, 28, 1, 2, 3, 0, time.UTC),
		pairs: tested, programs: map[string]string{}, signKey: key, downloads: strings.ReplaceAll(defaultDownloads, "VERSION", testVersion),
	}
	here := runtime.GOOS + "/" + runtime.GOARCH
	if here != "linux/amd64" {
		t.Skipf("stand-ins are made for linux/amd64, this is %s", here)
	}
	compiled := *r
	compiled.pairs = []string{here}
	if err := compiled.build(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, pair := range tested {
		r.programs[pair] = compiled.programs[here]
	}
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	return r
}

func artefacts(t *testing.T, r *release) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(r.out)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if out[e.Name()], err = os.ReadFile(filepath.Join(r.out, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestReleaseIsReproducible builds one release in two directories: all bytes
// must be the same, and the installed files must be right.
func TestReleaseIsReproducible(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if out, err := runIn(".", "git", "-C", "../..", "checkout-index", "--all", "--prefix="+elsewhere+"/"); err != nil {
		t.Skipf("no checkout to copy: %v\n%s", err, out)
	}
	first := made(t, "../..", key)
	one, two := artefacts(t, first), artefacts(t, made(t, elsewhere, key))
	names := slices.Sorted(maps.Keys(one))
	if want := slices.Sorted(maps.Keys(two)); !slices.Equal(names, want) {
		t.Fatalf("%v and %v", names, want)
	}
	for _, name := range names {
		if !bytes.Equal(one[name], two[name]) {
			t.Errorf("%s: two builds differ", name)
		}
		t.Logf("%s: %.1f MB", name, float64(len(one[name]))/1e6)
	}
	t.Run("checksums", func(t *testing.T) { checkSums(t, one, public) })
	t.Run("archive", func(t *testing.T) { checkArchive(t, one) })
	t.Run("sbom", func(t *testing.T) { checkSBOM(t, one["hostd_"+testVersion+".cdx.json"]) })
	t.Run("image", func(t *testing.T) { checkImage(t, one["hostd_"+testVersion+"_image.oci.tar.gz"]) })
	t.Run("deb", func(t *testing.T) { checkDeb(t, first.out) })
	t.Run("formula", func(t *testing.T) { checkFormula(t, one) })
	t.Run("npm", func(t *testing.T) { checkNPM(t, first, one) })
	t.Run("crate", func(t *testing.T) { checkCrate(t, first, one) })
	t.Run("roots", func(t *testing.T) { checkRoots(t, first) })
	t.Run("registry", func(t *testing.T) { checkRegistry(t, first) })
	t.Run("page", func(t *testing.T) { checkPage(t, first.out) })
}

func runIn(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func checkSums(t *testing.T, all map[string][]byte, public ed25519.PublicKey) {
	lines := strings.Split(strings.TrimSpace(string(all[sums])), "\n")
	if len(lines) != len(all)-2 { // all files except the checksums themselves and their signature
		t.Errorf("%d lines for %d artefacts", len(lines), len(all))
	}
	for _, line := range lines {
		sum, name, _ := strings.Cut(line, "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256(all[name])); got != sum {
			t.Errorf("%s: %s, want %s", name, sum, got)
		}
	}
	if payload, err := verify(all[sums+".dsse.json"], public); err != nil || !bytes.Equal(payload, all[sums]) {
		t.Errorf("the signature: %v", err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verify(all[sums+".dsse.json"], other); !errors.Is(err, errSignature) {
		t.Errorf("another key verifies it: %v", err)
	}
}

// unpacked unpacks a tar.gz.
func unpacked(t *testing.T, packed []byte) map[string][]byte {
	t.Helper()
	files, err := untar(packed)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, f := range files {
		out[f.name] = f.content
	}
	return out
}

func checkArchive(t *testing.T, all map[string][]byte) {
	name := "hostd_" + testVersion + "_linux_amd64"
	files := unpacked(t, all[name+".tar.gz"])
	for _, want := range []string{"LICENSE", "THIRD_PARTY_NOTICES.txt", "completions/hostd.bash", "completions/_hostd", "man/hostd.1", "man/hostd-entity-get.1", "man/hostd-serve.1"} {
		if len(files[name+"/"+want]) == 0 {
			t.Errorf("%s is missing", want)
		}
	}
	program := filepath.Join(t.TempDir(), "hostd")
	if err := os.WriteFile(program, files[name+"/hostd"], 0o755); err != nil {
		t.Fatal(err)
	}
	checkVersion(t, program)
	if size := len(files[name+"/hostd"]); size > 56_000_000 {
		t.Errorf("the program has %d bytes", size)
	}
	if _, ok := all["hostd_"+testVersion+"_windows_arm64.zip"]; !ok {
		t.Error("no zip for Windows")
	}
}

// checkVersion checks that an installed program reports its build.
func checkVersion(t *testing.T, program string) {
	t.Helper()
	out, err := exec.Command(program, "version", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Version, Commit, Date, Go string
		Dirty                     bool
	}
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	if v.Version != testVersion || v.Commit != testCommit || v.Date != "2026-11-28T01:02:03Z" || v.Dirty || v.Go != runtime.Version() {
		t.Errorf("%+v", v)
	}
}

func checkSBOM(t *testing.T, text []byte) {
	var bom struct {
		BOMFormat, SerialNumber string
		Metadata                struct{ Component struct{ Version string } }
		Components              []struct{ Name string }
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, c := range bom.Components {
		named[c.Name] = true
	}
	if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Version != testVersion || !named["github.com/tetratelabs/wazero"] || !named["std"] {
		t.Errorf("%+v", bom)
	}
}

func checkImage(t *testing.T, packed []byte) {
	type descriptor struct {
		Digest   string
		Platform struct{ OS, Architecture string }
	}
	files := unpacked(t, packed)
	blob := func(d descriptor, into any) {
		t.Helper()
		if err := json.Unmarshal(files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)], into); err != nil {
			t.Fatal(err)
		}
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Manifests) != 1 {
		t.Fatalf("%d images", len(index.Manifests))
	}
	for _, m := range index.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		blob(m, &manifest)
		var config struct {
			Architecture string
			Config       struct {
				User       string
				Entrypoint []string
				Labels     map[string]string
			}
		}
		blob(manifest.Config, &config)
		if config.Architecture != m.Platform.Architecture || config.Config.User != "65532:65532" || config.Config.Labels["org.opencontainers.image.version"] != testVersion {
			t.Errorf("%+v", config)
		}
		layer := unpacked(t, files["blobs/"+strings.Replace(manifest.Layers[0].Digest, ":", "/", 1)])
		if len(layer["usr/bin/hostd"]) == 0 {
			t.Error("no program in the image")
		}
	}
}

// checkDeb unpacks the package as dpkg does, and checks that a node can start
// with its configuration.
func checkDeb(t *testing.T, dir string) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg-deb here: Debian has it in the package dpkg")
	}
	found, err := filepath.Glob(filepath.Join(dir, "*_amd64.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	root := t.TempDir()
	if out, err := runIn(".", "dpkg-deb", "--raw-extract", found[0], root); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkVersion(t, filepath.Join(root, "usr/bin/hostd"))
	control, err := os.ReadFile(filepath.Join(root, "DEBIAN/control"))
	if err != nil || !strings.Contains(string(control), "Version: 9.8.7-1") {
		t.Errorf("%v\n%s", err, control)
	}
	for _, want := range []string{"usr/lib/systemd/system/hostd.service", "usr/lib/sysusers.d/hostd.conf", "etc/hostd/hostd.yaml", "usr/share/man/man1/hostd.1", "usr/share/bash-completion/completions/hostd", "DEBIAN/postinst", "DEBIAN/conffiles"} {
		if _, err := os.Stat(filepath.Join(root, want)); err != nil {
			t.Error(err)
		}
	}
	// An operator runs this check before the first start.
	cmd := exec.Command(filepath.Join(root, "usr/bin/hostd"), "serve", "--check", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(root, "data"))
	cmd.Env = append(os.Environ(), "HOSTD_CONFIG="+filepath.Join(root, "etc/hostd/hostd.yaml"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
