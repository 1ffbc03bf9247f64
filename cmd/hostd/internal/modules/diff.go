package modules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/manifest/diff"
	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/guest"
)

// exitBreaking is the exit code of a diff with breaking changes.
const exitBreaking = 3

// changes is the output of a diff.
type changes struct {
	Breaking bool          `json:"breaking"`
	Changes  []diff.Change `json:"changes"`
}

// Remark implements cli.Remark.
func (c changes) Remark() (line string, failure error) {
	if c.Breaking {
		return "some changes are incompatible with stored data or with clients of the old module", &cli.ExitError{Code: exitBreaking}
	}
	return "", nil
}

// NewDiff returns the command that compares two modules. complete completes a
// digest from its prefix.
func NewDiff(std cli.Stdio, complete func(ctx context.Context, c *client.Client, prefix string) (string, error)) *cobra.Command {
	return cli.Ask(std, "diff OLD NEW", "Compare the entity types of two modules, each a digest or FILE.wasm; exit with 3 on a breaking change", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (changes, error) {
		var of [2]*manifest.Manifest
		for i, name := range args {
			var err error
			if strings.HasSuffix(name, ".wasm") || strings.ContainsRune(name, filepath.Separator) {
				of[i], _, err = OfFile(ctx, name)
			} else {
				of[i], err = ofDigest(ctx, s, complete, name)
			}
			if err != nil {
				return changes{}, fmt.Errorf("%s: %w", name, err)
			}
		}
		v := changes{Changes: diff.Of(of[0], of[1])}
		for _, c := range v.Changes {
			v.Breaking = v.Breaking || c.Breaking
		}
		if v.Changes == nil {
			v.Changes = []diff.Change{}
		}
		return v, nil
	}, func(w io.Writer, v changes) {
		if len(v.Changes) == 0 {
			fmt.Fprintln(w, "no differences")
			return
		}
		cli.Table(w, "TYPE\tWHERE\tCHANGE\tBREAKS", func(row func(...any)) {
			for _, c := range v.Changes {
				row(c.EntityType, c.Where, c.What, map[bool]string{true: "yes", false: ""}[c.Breaking])
			}
		})
	})
}

func ofDigest(ctx context.Context, s *cli.Session, complete func(context.Context, *client.Client, string) (string, error), name string) (*manifest.Manifest, error) {
	digest, err := complete(ctx, s.Client, name)
	if err != nil {
		return nil, err
	}
	m, err := s.Module(ctx, digest)
	if err != nil {
		return nil, err
	}
	return OfAnswer(m)
}

// OfAnswer returns the manifest of a module from a node's response.
func OfAnswer(m *modulev1.GetModuleResponse) (*manifest.Manifest, error) {
	text, err := jsonvalue.Append(nil, structpb.NewStructValue(m.GetManifest()))
	if err != nil {
		return nil, err
	}
	return manifest.Parse(text)
}

// OfFile compiles the module in a file, as a node would, and returns its
// manifest and the SHA-256 of its bytes in lower-case hex.
func OfFile(ctx context.Context, name string) (of *manifest.Manifest, digest string, err error) {
	wasm, err := cli.ReadModule(name)
	if err != nil {
		return nil, "", err
	}
	e, err := guest.New(ctx, guest.Options{TellFaults: true})
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	if _, err := e.Admit(wasm); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(wasm)
	m, err := e.Compile(ctx, sum, wasm)
	if err != nil {
		return nil, "", err
	}
	return m.Manifest(), hex.EncodeToString(sum[:]), m.Close()
}
