package credential

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/authn"
)

// NewToken makes the command that has tokens made.
func NewToken(std cli.Stdio) *cobra.Command {
	return cli.Group("token", "Make tokens by which nodes know who calls", newTokenCreate(std))
}

// createdToken is what token create prints.
type createdToken struct {
	Name    string     `json:"name"`
	Token   string     `json:"token,omitempty"` // not of one that is in a file
	Line    string     `json:"line"`
	Expires *time.Time `json:"expires,omitempty"`
}

func newTokenCreate(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	var ttl time.Duration
	var file, secret string
	c := cli.Leaf("create NAME", "Make a token, and the line of a node's token-file for it", 1, 1, func(_ context.Context, _ *cobra.Command, args []string) error {
		if ttl < 0 {
			return cli.Usagef("--ttl must not be below zero")
		}
		made := createdToken{Name: args[0], Token: authn.NewToken()}
		var expires time.Time
		if ttl > 0 {
			expires = time.Now().Add(ttl).UTC().Truncate(time.Second)
			made.Expires = &expires
		}
		var err error
		if made.Line, err = authn.TokenLine(made.Name, made.Token, expires); err != nil {
			return cli.Usage(err)
		}
		if secret != "" {
			if err := writeNew(secret, made.Token); err != nil {
				return fmt.Errorf("create: %w", err)
			}
			made.Token = ""
		}
		if file != "" {
			if err := appendLine(file, made.Line); err != nil {
				if secret != "" {
					err = errors.Join(err, os.Remove(secret)) // no node would know it
				}
				return fmt.Errorf("create: %w", err)
			}
			fmt.Fprintf(std.Err, "%s has a line for %s\n", file, made.Name)
		}
		if secret != "" {
			fmt.Fprintf(std.Err, "%s has the token\n", secret)
		} else {
			fmt.Fprintln(std.Err, "the token is shown once, here")
		}
		return out.Print(made, func(w io.Writer) {
			if secret == "" {
				fmt.Fprintln(w, made.Token)
			}
			if file == "" {
				fmt.Fprintln(w, made.Line)
			}
		})
	})
	c.Long = "Makes a token of 256 random bits, and writes it to the file of --out or prints it once. The node's token-file has its hash. " +
		"Without --file the line for that file is printed after the token.\n\n" +
		"  hostd token create ci --ttl 720h --file tokens --out ci.token"
	c.Flags().DurationVar(&ttl, "ttl", 0, "`time` after which the token is refused; 0 is never")
	c.Flags().StringVar(&file, "file", "", "`file` that the line is appended to; made, for its owner alone, where there is none")
	c.Flags().StringVar(&secret, "out", "", "`file` for the token instead of printing it; made, for its owner alone, and never written over")
	out = cli.AddOutput(c, std)
	return c
}

// writeNew makes a file of a token for its owner alone; it fails where there is
// one already.
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

// appendLine adds a line to a file, after a line break where its last line has
// none.
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
	// One write: a node that reads the file meanwhile sees the line or does not.
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Sync())
}
