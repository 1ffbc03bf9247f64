package clientgen

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/modules"
	"github.com/hostd/hostd/host/files"
	"github.com/hostd/hostd/host/openapi"
)

// language is a language of generated clients, with the default file.
type language struct {
	name, file string
	write      func(types []entityType, packageName string) ([]byte, error)
}

var languages = []language{
	{"ts", "hostd.ts", func(types []entityType, _ string) ([]byte, error) { return typeScript(types) }},
	{"go", "hostd.go", golang},
	{"openapi", "openapi.json", func(types []entityType, _ string) ([]byte, error) { return openAPI(types) }},
}

// openAPI writes the OpenAPI document of some types.
func openAPI(types []entityType) ([]byte, error) {
	described := make([]openapi.Type, len(types))
	for i, t := range types {
		described[i] = openapi.Type{EntityType: t.EntityType, Module: t.module.Manifest, Digest: t.module.Digest}
	}
	text, err := openapi.Document(described, header(types), 0)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Indent(&out, text, "", "  ")
	return out.Bytes(), err
}

// order holds the options of the command line.
type order struct {
	types                          []string
	digest, lang, dir, packageName string
}

// NewClient returns the commands that generate clients. complete completes a
// digest from its prefix.
func NewClient(std cli.Stdio, complete func(ctx context.Context, c *client.Client, prefix string) (string, error)) *cobra.Command {
	return cli.Group("client", "Generate typed clients for entity types", newGenerate(std, complete))
}

func newGenerate(std cli.Stdio, complete func(ctx context.Context, c *client.Client, prefix string) (string, error)) *cobra.Command {
	var o order
	var r *cli.Remote
	var lang language
	c := cli.Leaf("generate [FILE.wasm]", "Generate a typed client for entity types", 0, 1, func(ctx context.Context, c *cobra.Command, args []string) error {
		found, err := o.modules(ctx, std, r, complete, cli.First(args))
		if err != nil {
			return err
		}
		types, err := find(found)
		if err != nil {
			return err
		}
		text, err := lang.write(types, o.packageName)
		if err != nil {
			return fmt.Errorf("generate: %w", err)
		}
		path := filepath.Join(o.dir, lang.file)
		if err := replace(path, text); err != nil {
			return err
		}
		fmt.Fprintln(std.Out, path)
		return nil
	})
	c.Long = "Generates the types and functions that a program needs to send commands to entities, to query them and to read their events. " +
		"It reads the modules that serve the types, the module that --digest names, or FILE.wasm, which needs no node. Its output is reproducible."
	r = cli.AddRemote(c)
	c.Flags().StringSliceVar(&o.types, "type", nil, "comma-separated entity `types` to generate; defaults to all types of FILE.wasm")
	c.Flags().StringVar(&o.digest, "digest", "", "`digest` of the module to read, or a unique prefix of it, instead of the modules that serve the types")
	c.Flags().StringVar(&o.lang, "lang", "", "`language` to generate: ts, go or openapi")
	c.Flags().StringVarP(&o.dir, "output", "o", "", "`directory` to write to; the file is hostd.ts, hostd.go or openapi.json")
	c.Flags().StringVar(&o.packageName, "package", "", "`name` of the Go package; defaults to the name of the directory")
	cli.Before(c, func(args []string) (err error) {
		lang, err = o.check(cli.First(args))
		return err
	})
	return c
}

// check checks the command line before any call.
func (o *order) check(file string) (language, error) {
	i := slices.IndexFunc(languages, func(l language) bool { return l.name == o.lang })
	switch {
	case i < 0:
		return language{}, cli.Usagef("--lang must be ts, go or openapi, got %q", o.lang)
	case o.dir == "":
		return language{}, cli.Usagef("set the output directory with -o")
	case file == "" && len(o.types) == 0:
		return language{}, cli.Usagef("set entity types with --type, or give a module file")
	case file != "" && o.digest != "":
		return language{}, cli.Usagef("--digest selects a module in the cluster and cannot be combined with the file %s", file)
	case o.packageName != "" && o.lang != "go":
		return language{}, cli.Usagef("--package needs --lang go")
	}
	if o.lang == "go" {
		if o.packageName == "" {
			dir, err := filepath.Abs(o.dir)
			if err != nil {
				return language{}, err
			}
			o.packageName = strings.ReplaceAll(filepath.Base(dir), "-", "")
		}
		if err := checkPackage(o.packageName); err != nil {
			return language{}, cli.Usage(err)
		}
	}
	return languages[i], nil
}

// modules finds the module of each type.
func (o *order) modules(ctx context.Context, std cli.Stdio, r *cli.Remote, complete func(context.Context, *client.Client, string) (string, error), file string) (map[string]Module, error) {
	out := map[string]Module{}
	if file != "" {
		m, digest, err := modules.OfFile(ctx, file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, name := range o.types {
			out[name] = Module{digest, m}
		}
		if len(o.types) == 0 {
			for _, name := range typeNames(m) {
				out[name] = Module{digest, m}
			}
		}
		return out, nil
	}
	s, err := r.Open(ctx, std)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	digest := ""
	if o.digest != "" {
		if digest, err = complete(ctx, s.Client, o.digest); err != nil {
			return nil, err
		}
	}
	for _, name := range o.types {
		if out[name], err = ofNode(ctx, s, name, digest); err != nil {
			return nil, fmt.Errorf("generate: the module of %s: %w", cli.Clean(name), err)
		}
	}
	return out, nil
}

// ofNode returns the module with a digest or, if the digest is empty, the
// module that serves a type.
func ofNode(ctx context.Context, s *cli.Session, entityType, digest string) (Module, error) {
	var res *modulev1.GetModuleResponse
	var err error
	if digest != "" {
		res, err = s.Module(ctx, digest)
	} else {
		res, err = s.ActiveModule(ctx, entityType)
	}
	if err != nil {
		return Module{}, err
	}
	m, err := modules.OfAnswer(res)
	return Module{res.GetModule().GetDigest(), m}, err
}

// maxGenerated limits how much of an existing file is read.
const maxGenerated = 64 << 20

// replace writes a file. It overwrites only a generated file.
func replace(path string, text []byte) error {
	if f, err := os.Open(path); err == nil {
		head, err := io.ReadAll(io.LimitReader(f, maxGenerated))
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if !bytes.Contains(head, []byte(generated)) {
			return fmt.Errorf("%s exists and was not generated: refusing to overwrite it", path)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return files.Replace(path, text, 0o644)
}
