package registry

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/modules"
	"github.com/hostd/hostd/host/files"
	"github.com/hostd/hostd/host/signing"
)

// stored is a module of a registry as it is printed.
type stored struct {
	Reference string `json:"reference"` // by digest
	Digest    string `json:"digest"`    // of the module
	Signed    bool   `json:"signed"`
	File      string `json:"file,omitempty"`
}

func storedOf(m artifact, file string) stored {
	return stored{m.reference, fmt.Sprintf("%x", sha256.Sum256(m.wasm)), len(m.signature) > 0, file}
}

// OpenModule returns a function that reads a module, and its signature if it has
// one. A file is read at once, and a reference to a registry is only checked, so
// that the download can have the time limit of its command.
func OpenModule(from string, plainHTTP bool) (read func(context.Context) (wasm, signature []byte, err error), err error) {
	if !strings.HasPrefix(from, scheme) {
		wasm, err := cli.ReadModule(from)
		return func(context.Context) ([]byte, []byte, error) { return wasm, nil, nil }, err
	}
	r, err := open(from, plainHTTP)
	if err != nil {
		return nil, cli.Usagef("%v", err)
	}
	return func(ctx context.Context) ([]byte, []byte, error) {
		m, err := r.pull(ctx)
		return m.wasm, m.signature, err
	}, nil
}

// AddPlainHTTP gives a command the flag --plain-http.
func AddPlainHTTP(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "plain-http", false, "call the registry without TLS")
}

// NewPublish returns the command that stores a module in a registry.
func NewPublish(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	var signatureFile string
	var plainHTTP bool
	c := cli.Leaf("publish FILE.wasm oci://HOST/REPOSITORY:TAG", "Store a module in an OCI registry; needs no node", 2, 2, func(ctx context.Context, _ *cobra.Command, args []string) error {
		r, err := open(args[1], plainHTTP)
		if err != nil {
			return cli.Usagef("publish: %v", err)
		}
		m := artifact{}
		if m.wasm, err = cli.ReadModule(args[0]); err != nil {
			return err
		}
		if !strings.HasPrefix(string(m.wasm), "\x00asm") {
			return cli.Usagef("%s is not a WebAssembly module", args[0])
		}
		if m.signature, err = modules.ReadSignature(ctx, signatureFile); err != nil {
			return err
		}
		if m.reference, err = r.push(ctx, m); err != nil {
			return err
		}
		return out.Print(storedOf(m, ""), func(w io.Writer) { fmt.Fprintln(w, m.reference) })
	})
	c.Long = "Stores a module, and its signature if it has one, as a WebAssembly artifact in an OCI registry, and prints its reference by digest. " +
		"It uses the credentials of 'docker login'.\n\n" +
		"  hostd module publish counter.wasm oci://registry.example.com/team/counter:1.0.0 --signature counter.sig\n" +
		"  hostd module push oci://registry.example.com/team/counter:1.0.0"
	c.Flags().StringVar(&signatureFile, "signature", "", "`file` with the module's signature from 'hostd module sign'")
	AddPlainHTTP(c, &plainHTTP)
	out = cli.AddOutput(c, std)
	return c
}

// NewPull returns the command that reads a module from a registry.
func NewPull(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	var file, signatureFile string
	var plainHTTP bool
	c := cli.Leaf("pull oci://HOST/REPOSITORY:TAG", "Download a module from an OCI registry; needs no node", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		r, err := open(args[0], plainHTTP)
		if err != nil {
			return cli.Usagef("pull: %v", err)
		}
		m, err := r.pull(ctx)
		if err != nil {
			return err
		}
		if signatureFile != "" && m.signature == nil {
			return fmt.Errorf("pull: %s has no signature, which --signature asks for", m.reference)
		}
		if file == "" {
			file = r.name() + ".wasm"
		}
		if err := files.Replace(file, m.wasm, 0o644); err != nil {
			return fmt.Errorf("pull: %w", err)
		}
		if signatureFile != "" {
			if err := files.Replace(signatureFile, []byte(signing.Text(m.signature)), 0o644); err != nil {
				return fmt.Errorf("pull: %w", err)
			}
		}
		return out.Print(storedOf(m, file), func(w io.Writer) { fmt.Fprintln(w, file) })
	})
	c.Long = "Downloads a module that 'hostd module publish', or another tool that stores WebAssembly artifacts, has stored in an OCI registry, and checks its digest. " +
		"A tag may move: name a digest, as in oci://HOST/REPOSITORY@sha256:DIGEST, to always get the same module. " +
		"It uses the credentials of 'docker login'."
	c.Flags().StringVar(&file, "out", "", "`file` to write the module to; defaults to the last part of the repository with .wasm; an existing file is overwritten")
	c.Flags().StringVar(&signatureFile, "signature", "", "`file` to write the module's signature to")
	AddPlainHTTP(c, &plainHTTP)
	out = cli.AddOutput(c, std)
	return c
}
