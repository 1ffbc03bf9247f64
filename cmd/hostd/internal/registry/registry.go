// Package registry stores modules in OCI registries and reads them from there.
//
// A module is an artifact as other WebAssembly tools write it: a manifest with
// the configuration of a module and one layer, the module. The module's
// signature, if it has one, is an annotation of the manifest. Credentials come from
// Docker's configuration and its helpers. The package keeps nothing and starts no
// goroutine.
package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	oras "oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/host/telemetry"
)

// scheme is the prefix of references to registries, as in Helm.
const scheme = "oci://"

// Media types of a WebAssembly artifact.
// https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/
const (
	configType = "application/vnd.wasm.config.v0+json"
	layerType  = "application/wasm"
	// olderLayerType is the type that wasm-to-oci writes.
	olderLayerType = "application/vnd.wasm.content.layer.v1+wasm"
)

// signatureAnnotation has the base64 of a module's signature.
const signatureAnnotation = "dev.hostd.module.signature"

const (
	// maxModuleBytes limits a module; nodes accept none above it.
	maxModuleBytes = 32 << 20
	// maxManifestBytes limits a manifest.
	maxManifestBytes = 1 << 20
	// patience limits a transfer.
	patience = 10 * time.Minute
)

// artifact is a module of a registry.
type artifact struct {
	wasm      []byte
	signature []byte // nil if it has none
	// reference names the artifact by its digest.
	reference string
}

// registry is a repository of a registry, and a tag or digest in it.
type registry struct{ repository *remote.Repository }

// open parses a reference: oci://HOST/REPOSITORY:TAG or with @DIGEST. It
// connects to nothing. With plainHTTP the registry is called without TLS.
func open(reference string, plainHTTP bool) (*registry, error) {
	text, ok := strings.CutPrefix(reference, scheme)
	if !ok {
		return nil, fmt.Errorf("%s: a reference to a registry begins with %s", reference, scheme)
	}
	ref, err := oras.ParseReference(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", reference, err)
	}
	if ref.Reference == "" {
		return nil, fmt.Errorf("%s: add a tag, such as %s:1.0.0, or a digest", reference, reference)
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the credentials of registries: %w", err)
	}
	client := &auth.Client{Client: retry.NewClient(), Cache: auth.NewCache(), Credential: credentials.Credential(store)}
	client.SetUserAgent("hostd/" + telemetry.ReadBuild().Version)
	return &registry{&remote.Repository{Client: client, Reference: ref, PlainHTTP: plainHTTP, MaxMetadataBytes: maxManifestBytes}}, nil
}

// name returns the last part of the repository's name.
func (r *registry) name() string {
	name := r.repository.Reference.Repository
	return name[strings.LastIndexByte(name, '/')+1:]
}

// push stores a module under the tag of the reference. Equal modules with equal
// signatures make equal artifacts.
func (r *registry) push(ctx context.Context, m artifact) (reference string, err error) {
	ref := r.repository.Reference
	if ref.ValidateReferenceAsTag() != nil {
		return "", fmt.Errorf("%s names a digest: add a tag instead", ref)
	}
	if len(m.wasm) > maxModuleBytes {
		return "", fmt.Errorf("the module has %d bytes, the limit is %d", len(m.wasm), maxModuleBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	layer := content.NewDescriptorFromBytes(layerType, m.wasm)
	layer.Annotations = map[string]string{ocispec.AnnotationTitle: r.name() + ".wasm"}
	// Fields in the order of the specification; a reactor of WASI preview 1.
	config, err := json.Marshal(struct {
		Architecture string          `json:"architecture"`
		OS           string          `json:"os"`
		LayerDigests []digest.Digest `json:"layerDigests"`
	}{"wasm", "wasip1", []digest.Digest{layer.Digest}})
	if err != nil {
		return "", err
	}
	manifest := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: content.NewDescriptorFromBytes(configType, config), Layers: []ocispec.Descriptor{layer}}
	manifest.SchemaVersion = 2
	if len(m.signature) > 0 {
		manifest.Annotations = map[string]string{signatureAnnotation: strings.TrimSpace(signing.Text(m.signature))}
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return "", err
	}
	for _, b := range []struct {
		d    ocispec.Descriptor
		data []byte
	}{{layer, m.wasm}, {manifest.Config, config}} {
		exists, err := r.repository.Blobs().Exists(ctx, b.d)
		if err == nil && !exists {
			err = r.repository.Blobs().Push(ctx, b.d, bytes.NewReader(b.data))
		}
		if err != nil {
			return "", fmt.Errorf("push to %s: %w", ref, err)
		}
	}
	d := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, text)
	if err := r.repository.PushReference(ctx, d, bytes.NewReader(text), ref.Reference); err != nil {
		return "", fmt.Errorf("push to %s: %w", ref, err)
	}
	return r.byDigest(d.Digest), nil
}

func (r *registry) byDigest(d digest.Digest) string {
	ref := r.repository.Reference
	ref.Reference = d.String()
	return scheme + ref.String()
}

// pull reads the module of the reference. Its bytes have the digests that the
// registry's manifest names.
func (r *registry) pull(ctx context.Context) (artifact, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := r.read(ctx)
	if err != nil {
		return m, fmt.Errorf("pull %s: %w", r.repository.Reference, err)
	}
	return m, nil
}

func (r *registry) read(ctx context.Context) (out artifact, err error) {
	d, err := r.repository.Resolve(ctx, r.repository.Reference.Reference)
	if err != nil {
		return out, err
	}
	if d.MediaType != ocispec.MediaTypeImageManifest {
		return out, fmt.Errorf("it is a %s, not a module", d.MediaType)
	}
	text, err := r.fetch(ctx, r.repository.Manifests(), d, maxManifestBytes)
	if err != nil {
		return out, err
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(text, &manifest); err != nil {
		return out, fmt.Errorf("its manifest: %w", err)
	}
	layers := slices.DeleteFunc(slices.Clone(manifest.Layers), func(l ocispec.Descriptor) bool {
		return l.MediaType != layerType && l.MediaType != olderLayerType
	})
	if len(layers) != 1 {
		return out, fmt.Errorf("it has %d layers of WebAssembly, a module has one", len(layers))
	}
	if out.wasm, err = r.fetch(ctx, r.repository.Blobs(), layers[0], maxModuleBytes); err != nil {
		return out, err
	}
	if text := manifest.Annotations[signatureAnnotation]; text != "" {
		if out.signature, err = signing.ParseText([]byte(text)); err != nil {
			return out, err
		}
	}
	out.reference = r.byDigest(d.Digest)
	return out, nil
}

// fetch reads content of at most limit bytes and checks its size and digest.
func (r *registry) fetch(ctx context.Context, from content.Fetcher, d ocispec.Descriptor, limit int64) (_ []byte, err error) {
	if d.Size < 0 || d.Size > limit {
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d", d.Digest, d.Size, limit)
	}
	in, err := from.Fetch(ctx, d)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	data, err := content.ReadAll(io.LimitReader(in, limit+1), d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Digest, err)
	}
	return data, nil
}
