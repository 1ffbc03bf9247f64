// Package certs keeps the certificates of a node's ports: it reads them from
// files, reads them again when they change, and knows which connections were
// opened under which. It makes the handshakes between nodes, and issues
// certificates for those who have no authority of their own. All cryptography
// is that of crypto/tls and crypto/x509.
//
// It never logs a key, and never does without the certificates that it has
// because others cannot be read. Reloader.Run owns the goroutine that watches
// the directories of the files.
package certs
