// Package certs manages the certificates of a node's listeners. It reads them
// from files, reads the files again when they change, and tracks which
// connections use which certificates. It also does the handshakes between
// nodes, and issues certificates for users without a certificate authority. All
// cryptography is in crypto/tls and crypto/x509.
//
// It never logs a private key. If a file becomes unreadable or invalid, the
// previous certificates stay in use. Reloader.Run owns the goroutine that
// watches the directories of the files.
package certs
