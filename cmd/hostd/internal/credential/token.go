package credential

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/roles"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/sharding/access"
)

// NewToken returns the commands for tokens.
func NewToken(std cli.Stdio) *cobra.Command {
	return cli.Group("token", "Create, list and remove authentication tokens", newTokenCreate(std), newTokenList(std), newTokenRemove(std))
}

// createdToken is the output of token create.
type createdToken struct {
	Name     string     `json:"name"`
	Token    string     `json:"token,omitempty"` // empty if it was written to a file
	Line     string     `json:"line,omitempty"`  // line of the token file
	Roles    []string   `json:"roles,omitempty"` // roles of the token in the cluster
	Revision uint64     `json:"revision,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
}

// creation holds the options of token create.
type creation struct {
	std    cli.Stdio
	remote *cli.Remote
	out    *cli.Output
	ttl    time.Duration
	file   string // the node's token file; if empty, the cluster stores the token
	secret string // file for the token; if empty, the token is printed
	roles  []string
}

func newTokenCreate(std cli.Stdio) *cobra.Command {
	o := &creation{std: std}
	c := cli.Leaf("create NAME", "Create a token in the cluster, or a line for a node's token-file", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		switch {
		case o.ttl < 0:
			return cli.Usagef("--ttl must not be below zero")
		case o.file == "" && len(o.roles) == 0:
			return cli.Usagef("set --role to store the token in the cluster, with that role for its bearer, or --file to add it to a node's token-file")
		case o.file != "" && len(o.roles) > 0:
			return cli.Usagef("--role stores the token in the cluster, --file adds it to a node's token-file: set only one of them ('hostd binding put' gives roles to the bearer of a token in a token-file)")
		}
		return o.make(ctx, args[0])
	})
	c.Long = "Creates a token of 256 random bits on this machine, and writes it to the file of --out or prints it once. With --role it sends nodes only " +
		"the token's SHA-256, which the cluster stores with the roles of its bearer, token:NAME. With --file it calls no node, and appends the line with the hash to a node's token-file.\n\n" +
		"  hostd token create ci --role invoker --ttl 720h --out ci.token\n  hostd token create me --file tokens --out me.token"
	c.Flags().StringArrayVar(&o.roles, "role", nil, "`role` of the token's bearer; stores the token in the cluster; may be repeated")
	c.Flags().DurationVar(&o.ttl, "ttl", 0, "`time` until the token expires; 0 means never")
	c.Flags().StringVar(&o.file, "file", "", "token-file of nodes to append the token's hash to, a `file`; created readable by its owner only")
	c.Flags().StringVar(&o.secret, "out", "", "`file` to write the token to instead of printing it, readable by its owner only; an existing file is not overwritten")
	o.remote, o.out = cli.AddRemote(c), cli.AddOutput(c, std)
	return c
}

// make creates a token, stores its hash and prints the token or writes it to a
// file. It writes that file first, so that no stored token is unknown to its
// user, and removes it again if storing the hash fails.
func (o *creation) make(ctx context.Context, name string) error {
	token := authn.NewToken()
	made := createdToken{Name: name, Token: token, Roles: o.roles}
	var expires time.Time
	if o.ttl > 0 {
		expires = time.Now().Add(o.ttl).UTC().Truncate(time.Second)
		made.Expires = &expires
	}
	line, err := authn.TokenLine(name, token, expires)
	if err != nil {
		return cli.Usage(err)
	}
	if o.secret != "" {
		if err := writeNew(o.secret, token); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		made.Token = ""
	}
	if o.file != "" {
		made.Line = line
		err = appendLine(o.file, line)
	} else {
		made.Revision, err = o.printToken(ctx, name, token, expires)
	}
	if err != nil {
		if o.secret != "" {
			err = errors.Join(err, os.Remove(o.secret))
		}
		return fmt.Errorf("create: %w", err)
	}
	if o.file != "" {
		fmt.Fprintf(o.std.Err, "added a line for %s to %s\n", name, o.file)
	} else {
		fmt.Fprintf(o.std.Err, "the cluster stores the token of token:%s, revision %d\n", name, made.Revision)
	}
	if o.secret != "" {
		fmt.Fprintf(o.std.Err, "wrote the token to %s\n", o.secret)
	} else {
		fmt.Fprintln(o.std.Err, "the token is printed only this once")
	}
	return o.out.Print(made, func(w io.Writer) {
		if o.secret == "" {
			fmt.Fprintln(w, token)
		}
	})
}

// printToken stores the hash of a token in the cluster.
func (o *creation) printToken(ctx context.Context, name, token string, expires time.Time) (revision uint64, err error) {
	s, err := o.remote.Open(ctx, o.std)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	revision, err = client.TokensOf(s.Client).Create(ctx, name, sha256.Sum256([]byte(token)), expires, o.roles...)
	if err == nil {
		roles.WarnUnlessEnforced(ctx, s)
	}
	return revision, err
}

// tokens are the cluster's tokens as they are printed.
type tokens struct {
	Tokens []*cli.Object `json:"tokens"`
	shown  []*clusterv1.Token
}

func newTokenList(std cli.Stdio) *cobra.Command {
	c := cli.Ask(std, "ls", "List the tokens that the cluster stores", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (*tokens, error) {
		kept, err := client.TokensOf(s.Client).List(ctx)
		if err != nil {
			return nil, err
		}
		return &tokens{cli.Views(kept), kept}, nil
	}, func(w io.Writer, v *tokens) {
		cli.Table(w, "NAME\tROLES\tEXPIRES\tMADE\tREVISION", func(row func(...any)) {
			for _, t := range v.shown {
				expires := "never"
				if at := t.GetExpiresAt(); at != nil {
					expires = at.AsTime().Format(time.RFC3339)
				}
				if t.GetExpired() {
					expires += " (expired)"
				}
				roles := "-"
				if len(t.GetRoles()) > 0 {
					roles = strings.Join(t.GetRoles(), ",")
				}
				row(t.GetTokenName(), roles, expires, t.GetCreatedAt().AsTime().Format(time.RFC3339), t.GetRevision())
			}
		})
	})
	c.Long = "Lists the tokens that the cluster stores, with the roles of their bearers. It does not list tokens in a node's token-file."
	return c
}

func newTokenRemove(std cli.Stdio) *cobra.Command {
	c := cli.Order(std, "rm NAME", "Remove a token from the cluster, with the roles of its bearer", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		return "the cluster has no token " + args[0], client.TokensOf(s.Client).Remove(ctx, args[0])
	})
	cli.Before(c, func(args []string) error {
		if err := access.CheckTokenName(args[0]); err != nil {
			return cli.Usage(err)
		}
		return nil
	})
	return c
}

// writeNew creates a token file that only its owner can read; it fails if the
// file exists.
func writeNew(path, token string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(token + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// appendLine appends a line to a file, and first a line break if the last line
// has none.
func appendLine(path, line string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if size := info.Size(); size > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = "\n" + line
		}
	}
	// A single write, so that a node that reads the file concurrently sees all
	// of the line or nothing.
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Sync())
}
