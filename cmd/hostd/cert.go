package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/config"
)

func newCert(std cli.Stdio) *cobra.Command {
	c := cli.Group("cert", "Issue certificates for nodes and clients, and revoke nodes' certificates", newCertCA(std), newCertNode(std), newCertClient(std), newCertRevoke(std))
	c.Long = "Issues certificates (ECDSA P-256) if you have no certificate authority of your own. " +
		"Keep the directory of the authority away from machines that run nodes or clients: somebody who has its key can impersonate every node."
	return c
}

// certFlags are the directory of the certificates and the name of their
// cluster.
type certFlags struct {
	dir, cluster string
	hosts        []string
	keep         bool
}

// issued lists the files that were created.
type issued struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

func (i issued) write(w io.Writer) { fmt.Fprintf(w, "%s\n%s\n", i.Cert, i.Key) }

// newCertCommand returns a command that creates two files and prints their
// names.
func newCertCommand(std cli.Stdio, use, short string, args int, make func(f certFlags, name string) (issued, error)) (*cobra.Command, *certFlags) {
	var f certFlags
	var out *cli.Output
	c := cli.Leaf(use, short, args, args, func(_ context.Context, _ *cobra.Command, given []string) error {
		i, err := make(f, cli.First(given))
		switch {
		case errors.Is(err, os.ErrExist) && f.keep && filesExist(i.Cert, i.Key):
		case errors.Is(err, os.ErrExist):
			return cli.Hint(err, "Existing files are not overwritten: move the file away, or set a different directory with --dir.")
		case errors.Is(err, os.ErrNotExist):
			return cli.Hint(err, "Create an authority with 'hostd cert create-ca', or set its directory with --dir.")
		case err != nil:
			return err
		}
		return out.Print(i, i.write)
	})
	out = cli.AddOutput(c, std)
	c.Flags().StringVar(&f.dir, "dir", "certs", "`directory` of the authority ("+certs.AuthorityCert+" and "+certs.AuthorityKey+") and of the certificates that it issues")
	c.Flags().BoolVar(&f.keep, "keep", false, "succeed and change nothing if both files exist already")
	return c, &f
}

func filesExist(names ...string) bool {
	for _, name := range names {
		if _, err := os.Stat(name); err != nil {
			return false
		}
	}
	return true
}

func addClusterName(c *cobra.Command, f *certFlags) {
	c.Flags().StringVar(&f.cluster, "cluster-name", config.Default().ClusterName, "`label` of the cluster, the nodes' cluster-name")
}

func newCertCA(std cli.Stdio) *cobra.Command {
	c, f := newCertCommand(std, "create-ca", "Create a certificate authority, valid for 10 years", 0, func(f certFlags, _ string) (issued, error) {
		_, err := certs.CreateAuthority(f.dir, f.cluster)
		cert, key := certs.AuthorityFiles(f.dir)
		return issued{cert, key}, err
	})
	addClusterName(c, f)
	return c
}

func newCertNode(std cli.Stdio) *cobra.Command {
	c, f := newCertCommand(std, "create-node NAME --host HOST", "Issue a certificate for a node, valid for a year", 1, func(f certFlags, name string) (issued, error) {
		cert, key := certs.NodeFiles(f.dir, name)
		return issue(f.dir, cert, key, certs.Request{Name: name, Cluster: f.cluster, Hosts: f.hosts})
	})
	c.Flags().StringSliceVar(&f.hosts, "host", nil, "DNS `name` or IP address of the node; may be repeated")
	addClusterName(c, f)
	return c
}

func newCertClient(std cli.Stdio) *cobra.Command {
	c, _ := newCertCommand(std, "create-client NAME", "Issue a certificate for a client, valid for a year", 1, func(f certFlags, name string) (issued, error) {
		cert, key := certs.ClientFiles(f.dir, name)
		return issue(f.dir, cert, key, certs.Request{Name: name})
	})
	return c
}

func issue(dir, cert, key string, q certs.Request) (issued, error) {
	a, err := certs.OpenAuthority(dir)
	if err == nil {
		err = a.Issue(cert, key, q)
	}
	return issued{cert, key}, err
}

// revoked is the result of a revocation.
type revoked struct {
	List    string    `json:"list"`
	Number  int64     `json:"number"`
	Revoked int       `json:"revoked"`
	Until   time.Time `json:"until"`
}

func (r revoked) write(w io.Writer) {
	fmt.Fprintf(w, "%s\nnumber %d, revoked certificates %d, valid until %s\n", r.List, r.Number, r.Revoked, r.Until.UTC().Format(time.RFC3339))
}

// maxRevokedAtOnce limits the certificates of one command.
const maxRevokedAtOnce = 256

func newCertRevoke(std cli.Stdio) *cobra.Command {
	var dir, to string
	var valid time.Duration
	var out *cli.Output
	c := cli.Leaf("revoke [NAME|FILE]...", "Revoke nodes' certificates and write the revocation list", 0, maxRevokedAtOnce, func(_ context.Context, _ *cobra.Command, given []string) error {
		a, err := certs.OpenAuthority(dir)
		if errors.Is(err, os.ErrNotExist) {
			return cli.Hint(err, "Set the directory of the authority with --dir.")
		} else if err != nil {
			return err
		}
		if to == "" {
			to = filepath.Join(dir, "peers.crl")
		}
		var all []*x509.Certificate
		for _, name := range given {
			path := name
			if !strings.ContainsAny(name, `/\`) && !strings.HasSuffix(name, ".crt") && !strings.HasSuffix(name, ".pem") {
				path, _ = certs.NodeFiles(dir, name)
			}
			leaf, err := certs.ReadCertificate(path)
			if errors.Is(err, os.ErrNotExist) {
				return cli.Hint(err, "Give the node's name as given to 'hostd cert create-node', or the file of its certificate.")
			} else if err != nil {
				return err
			}
			all = append(all, leaf)
		}
		made, err := a.Revoke(to, time.Now().Add(valid), all...)
		if err != nil {
			return err
		}
		list := revoked{to, made.Number, made.Revoked, made.Until}
		return out.Print(list, list.write)
	})
	c.Long = "Adds certificates to the revocation list that every node reads as peer-crl-file. " +
		"Without arguments it only extends the list's validity, because a node does not start with an expired list. " +
		"Copy the list to every node and rename it into place. Nodes read it again within a minute, or at once if they can watch the directory, and then reject the certificates."
	out = cli.AddOutput(c, std)
	c.Flags().StringVar(&dir, "dir", "certs", "`directory` of the authority ("+certs.AuthorityCert+" and "+certs.AuthorityKey+") and of the certificates that it issues")
	c.Flags().StringVar(&to, "out", "", "`file` of the revocation list to extend or create; defaults to DIR/peers.crl")
	c.Flags().DurationVar(&valid, "valid-for", certs.RevocationLife, "`time` that the list is valid for")
	return c
}
