package registry

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hostd/hostd/host/signing"
)

// store is an OCI registry of one repository, with the calls that clients need
// to push and pull. It accepts one user.
// https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#endpoints
type store struct {
	mu    sync.Mutex
	blobs map[string][]byte // by digest
	tags  map[string]string
	kinds map[string]string // media types of manifests by digest
}

const user, password = "ops", "secret"

func newStore(t *testing.T) (s *store, host string) {
	t.Helper()
	s = &store{blobs: map[string][]byte{}, tags: map[string]string{}, kinds: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("HEAD /v2/team/counter/blobs/{digest}", s.get)
	mux.HandleFunc("GET /v2/team/counter/blobs/{digest}", s.get)
	mux.HandleFunc("GET /v2/team/counter/manifests/{digest}", s.get)
	mux.HandleFunc("HEAD /v2/team/counter/manifests/{digest}", s.get)
	mux.HandleFunc("POST /v2/team/counter/blobs/uploads/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/v2/team/counter/blobs/uploads/1")
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("PUT /v2/team/counter/blobs/uploads/1", func(w http.ResponseWriter, r *http.Request) {
		s.put(w, r, r.URL.Query().Get("digest"), "", "")
	})
	mux.HandleFunc("PUT /v2/team/counter/manifests/{tag}", func(w http.ResponseWriter, r *http.Request) {
		s.put(w, r, "", r.PathValue("tag"), r.Header.Get("Content-Type"))
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, secret, _ := r.BasicAuth(); name != user || secret != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return s, strings.TrimPrefix(server.URL, "http://")
}

func (s *store) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := r.PathValue("digest")
	if of, ok := s.tags[digest]; ok {
		digest = of
	}
	data, ok := s.blobs[digest]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if kind := s.kinds[digest]; kind != "" {
		w.Header().Set("Content-Type", kind)
	}
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(data)
	}
}

func (s *store) put(w http.ResponseWriter, r *http.Request, digest, tag, kind string) {
	data, err := io.ReadAll(r.Body)
	got := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	if err != nil || digest != "" && digest != got {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blobs[got] = data
	if kind != "" {
		s.tags[tag], s.kinds[got] = got, kind
	}
	w.Header().Set("Docker-Content-Digest", got)
	w.WriteHeader(http.StatusCreated)
}

// login writes the credentials as 'docker login' does.
func login(t *testing.T, host, secret string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	text, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string][]byte{"auth": []byte(user + ":" + secret)}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, reference string) *registry {
	t.Helper()
	r, err := open(reference, true)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func signature(t *testing.T) []byte {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return signing.Sign(signing.Statement{Name: "counter"}, key)
}

var wasm = []byte("\x00asm\x01\x00\x00\x00")

func TestPullReturnsWhatWasPushed(t *testing.T) {
	_, host := newStore(t)
	login(t, host, password)
	reference := "oci://" + host + "/team/counter:1.0.0"
	for _, m := range []artifact{{wasm: wasm}, {wasm: wasm, signature: signature(t)}} {
		at, err := opened(t, reference).push(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := opened(t, reference).push(t.Context(), m)
		if err != nil || again != at {
			t.Errorf("the second push makes %s after %s: %v", again, at, err)
		}
		for _, from := range []string{reference, at} {
			got, err := opened(t, from).pull(t.Context())
			if err != nil || !bytes.Equal(got.wasm, m.wasm) || !bytes.Equal(got.signature, m.signature) || got.reference != at {
				t.Errorf("%s: %+v, %v", from, got, err)
			}
		}
	}
}

// TestArtifactIsThatOfWebAssembly compares the manifest with the layout that
// other tools read.
func TestArtifactIsThatOfWebAssembly(t *testing.T) {
	s, host := newStore(t)
	login(t, host, password)
	if _, err := opened(t, "oci://"+host+"/team/counter:1").push(t.Context(), artifact{wasm: wasm}); err != nil {
		t.Fatal(err)
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(wasm))
	config := `{"architecture":"wasm","os":"wasip1","layerDigests":["` + digest + `"]}`
	want := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",`+
		`"config":{"mediaType":"application/vnd.wasm.config.v0+json","digest":"sha256:%x","size":%d},`+
		`"layers":[{"mediaType":"application/wasm","digest":"%s","size":8,"annotations":{"org.opencontainers.image.title":"counter.wasm"}}]}`,
		sha256.Sum256([]byte(config)), len(config), digest)
	if got := string(s.blobs[s.tags["1"]]); got != want {
		t.Errorf("the manifest is\n%s\nwant\n%s", got, want)
	}
}

func TestWrongArtifactsAreRejected(t *testing.T) {
	s, host := newStore(t)
	login(t, host, password)
	const image = "application/vnd.oci.image.manifest.v1+json"
	layer := func(kind, digest string, size int) string {
		return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d}`, kind, digest, size)
	}
	sum := func(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }
	damaged := sum([]byte("\x00asm, as it was"))
	s.blobs[sum(wasm)], s.blobs[damaged] = wasm, []byte("\x00asm, as it is.")
	for _, c := range []struct{ name, kind, manifest, says string }{
		{"index", "application/vnd.oci.image.index.v1+json", `{}`, "not a module"},
		{"text", image, `x`, "its manifest"},
		{"no layer", image, `{"layers":[]}`, "0 layers of WebAssembly"},
		{"a layer of an image", image, `{"layers":[` + layer("application/vnd.oci.image.layer.v1.tar", sum(wasm), 8) + `]}`, "0 layers of WebAssembly"},
		{"two layers", image, `{"layers":[` + layer(layerType, sum(wasm), 8) + "," + layer(layerType, sum(wasm), 8) + `]}`, "2 layers of WebAssembly"},
		{"large", image, `{"layers":[` + layer(layerType, sum(wasm), maxModuleBytes+1) + `]}`, "the limit is"},
		{"negative", image, `{"layers":[` + layer(layerType, sum(wasm), -1) + `]}`, "the limit is"},
		{"longer than it says", image, `{"layers":[` + layer(layerType, sum(wasm), 7) + `]}`, ""},
		{"damaged", image, `{"layers":[` + layer(layerType, damaged, 15) + `]}`, "digest"},
		{"absent", image, `{"layers":[` + layer(layerType, sum([]byte("no")), 2) + `]}`, "not found"},
		{"no signature", image, `{"layers":[` + layer(layerType, sum(wasm), 8) + `],"annotations":{"dev.hostd.module.signature":"AAAA"}}`, "signature"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := sum([]byte(c.manifest))
			s.mu.Lock()
			s.blobs[at], s.kinds[at], s.tags["1"] = []byte(c.manifest), c.kind, at
			s.mu.Unlock()
			if _, err := opened(t, "oci://"+host+"/team/counter:1").pull(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestCallerNeedsCredentials(t *testing.T) {
	_, host := newStore(t)
	login(t, host, "wrong")
	r := opened(t, "oci://"+host+"/team/counter:1")
	if _, err := r.push(t.Context(), artifact{wasm: wasm}); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("push: %v", err)
	}
	if _, err := r.pull(t.Context()); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("pull: %v", err)
	}
}

func TestReferencesAreChecked(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	for text, says := range map[string]string{
		"counter.wasm":                   "begins with oci://",
		"oci://example.com/counter":      "add a tag",
		"oci://counter:1":                "oci://counter:1",
		"oci://example.com/Counter:1":    "invalid",
		"https://example.com/counter:1":  "begins with oci://",
		"oci://example.com/counter@sha1": "invalid",
	} {
		if _, err := open(text, false); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	if _, err := opened(t, "oci://example.com/a/counter:1").push(t.Context(), artifact{wasm: make([]byte, maxModuleBytes+1)}); err == nil || !strings.Contains(err.Error(), "the limit is") {
		t.Errorf("push of a module that no node accepts: %v", err)
	}
	r := opened(t, "oci://example.com/a/counter@sha256:"+strings.Repeat("0", 64))
	if _, err := r.push(t.Context(), artifact{wasm: wasm}); err == nil || !strings.Contains(err.Error(), "add a tag") || r.name() != "counter" {
		t.Errorf("push to a digest: %v", err)
	}
}
