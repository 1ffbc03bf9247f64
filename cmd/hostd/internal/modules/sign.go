package modules

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/files"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/signing"
)

// maxKeyBytes limits files of keys and of signatures.
const maxKeyBytes = 64 << 10

// madeKey is a new key as it is printed.
type madeKey struct {
	Key  string `json:"key"`  // the file
	Line string `json:"line"` // the key's line in a module-trust-file
}

// NewKeygen returns the command that creates keys.
func NewKeygen(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	var file, name string
	c := cli.Leaf("keygen --out FILE", "Create a key to sign modules with, and print its line for module-trust-file", 0, 0, func(context.Context, *cobra.Command, []string) error {
		if file == "" {
			return cli.Usagef("--out must be set to the file for the key")
		}
		if name == "" {
			name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		}
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return err
		}
		line, err := signing.Line(name, public)
		if err != nil {
			return cli.Usagef("%v; set a name with --name", err)
		}
		text, err := signing.KeyText(private)
		if err != nil {
			return err
		}
		if err := writeNew(file, text, 0o600); err != nil {
			return fmt.Errorf("keygen: %w", err)
		}
		return out.Print(madeKey{file, line}, func(w io.Writer) { fmt.Fprintln(w, line) })
	})
	c.Long = "Creates an Ed25519 key and prints the line with its public key; append the line to the module-trust-file of nodes. " +
		"Somebody who has the file of --out can sign modules: keep it where you release modules, and not on a node.\n\n" +
		"  hostd module keygen --out release.key >> trusted-keys"
	c.Flags().StringVar(&file, "out", "", "`file` to write the private key to, readable by its owner only; an existing file is not overwritten")
	c.Flags().StringVar(&name, "name", "", "`name` that nodes show as the signer, [A-Za-z0-9._-]; defaults to the name of the file")
	out = cli.AddOutput(c, std)
	return c
}

// NewSign returns the command that signs a module.
func NewSign(std cli.Stdio) *cobra.Command {
	var keyFile, file string
	c := cli.Leaf("sign FILE.wasm --key KEY --out SIGNATURE", "Sign a module; needs no node", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if keyFile == "" {
			return cli.Usagef("--key must be set to the file of the key, which 'hostd module keygen' creates")
		}
		if file == "" {
			return cli.Usagef("--out must be set to the file for the signature")
		}
		text, err := cli.ReadFile(ctx, keyFile, maxKeyBytes)
		if err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		key, err := signing.ParseKey(text)
		if err != nil {
			return fmt.Errorf("sign: %s: %w", keyFile, err)
		}
		wasm, err := cli.ReadModule(args[0])
		if err != nil {
			return err
		}
		s, err := statementOf(ctx, wasm)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if err := files.Replace(file, []byte(signing.Text(signing.Sign(s, key))), 0o644); err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		fmt.Fprintf(std.Err, "wrote to %s the signature of %s %s, digest %x\n", file, s.Name, s.Version, s.Digest)
		return nil
	})
	c.Long = "Signs the bytes of a module together with the name and version in its manifest, which it reads by compiling the module as a node does. " +
		"Keys of other tools work too: Ed25519, as PKCS #8 in PEM.\n\n" +
		"  hostd module sign counter.wasm --key release.key --out counter.sig\n  hostd module push counter.wasm --signature counter.sig"
	c.Flags().StringVar(&keyFile, "key", "", "`file` with the private key")
	c.Flags().StringVarP(&file, "out", "o", "", "`file` to write the signature to; an existing file is overwritten")
	return c
}

// statementOf returns the statement that a module's signature covers.
func statementOf(ctx context.Context, wasm []byte) (s signing.Statement, err error) {
	e, err := guest.New(ctx, guest.Options{})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	if _, err := e.Admit(wasm); err != nil {
		return s, err
	}
	digest := sha256.Sum256(wasm)
	m, err := e.Compile(ctx, digest, wasm)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return signing.Statement{Digest: digest, Name: m.Manifest().Name, Version: m.Manifest().Version}, nil
}

// ReadSignature reads a file that module sign wrote; an empty path returns nil.
func ReadSignature(ctx context.Context, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := cli.ReadFile(ctx, path, maxKeyBytes)
	if err != nil {
		return nil, fmt.Errorf("--signature: %w", err)
	}
	signature, err := signing.ParseText(text)
	if err != nil {
		return nil, cli.Usagef("--signature %s: %v", path, err)
	}
	return signature, nil
}

// writeNew creates a file, and fails if it exists.
func writeNew(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
