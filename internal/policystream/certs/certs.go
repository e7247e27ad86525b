// SPDX-License-Identifier: Apache-2.0

// Package certs makes the certificates by which agents know controllers, keeps them in a Secret
// that all replicas share, and renews them.
package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// How long certificates are good, and how long before their end there are new ones. Agents receive
// a new authority at once, and still trust the old one until its end.
const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	authorityRenewal  = 365 * 24 * time.Hour
	serverLifetime    = 365 * 24 * time.Hour
	serverRenewal     = 120 * 24 * time.Hour
	// skew is how far a clock may be behind.
	skew = time.Hour
)

// Bundle is what the Secret holds, PEM encoded.
type Bundle struct {
	// Roots are the authorities that agents trust: the one that signs now is first.
	Roots []byte
	// AuthorityKey is that of the first.
	AuthorityKey []byte
	// Cert and Key are the server's.
	Cert, Key []byte
}

// Server reads the server's certificate, if the roots and that name fit it.
func (b Bundle) Server(name string, now time.Time) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(b.Cert, b.Key)
	if err != nil {
		return nil, fmt.Errorf("server's certificate: %w", err)
	}
	roots, err := parseAll(b.Roots)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, r := range roots {
		pool.AddCert(r)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name, CurrentTime: now}); err != nil {
		return nil, fmt.Errorf("server's certificate: %w", err)
	}
	return &pair, nil
}

// Pool is the roots for a client.
func Pool(roots []byte) (*x509.CertPool, error) {
	list, err := parseAll(roots)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, r := range list {
		pool.AddCert(r)
	}
	return pool, nil
}

// Renew returns a bundle that is good for a while, and when to look again. It is the same one if
// that is: what is missing, damaged or about to end is recreated, and nothing else.
func Renew(b Bundle, name string, now time.Time) (renewed Bundle, again time.Time, err error) {
	roots, key, err := b.authority(now)
	if err != nil {
		if roots, key, err = b.newAuthority(now); err != nil {
			return Bundle{}, time.Time{}, err
		}
		b.Roots = nil
		for _, r := range roots {
			b.Roots = append(b.Roots, encode("CERTIFICATE", r.Raw)...)
		}
		if b.AuthorityKey, err = encodeKey(key); err != nil {
			return Bundle{}, time.Time{}, err
		}
	}
	leaf, err := b.leaf(name, roots[0], now)
	if err != nil {
		if leaf, err = b.newLeaf(name, roots[0], key, now); err != nil {
			return Bundle{}, time.Time{}, err
		}
	}
	again = leaf.NotAfter.Add(-serverRenewal)
	if a := roots[0].NotAfter.Add(-authorityRenewal); a.Before(again) {
		again = a
	}
	return b, again, nil
}

// authority is the present one, if it can still be used.
func (b Bundle) authority(now time.Time) ([]*x509.Certificate, *ecdsa.PrivateKey, error) {
	roots, err := parseAll(b.Roots)
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(b.AuthorityKey)
	if block == nil {
		return nil, nil, errors.New("authority: no key")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("authority: %w", err)
	}
	first := roots[0]
	switch {
	case !key.PublicKey.Equal(first.PublicKey):
		return nil, nil, errors.New("authority: the key is of another")
	case !first.IsCA, now.Before(first.NotBefore), now.After(first.NotAfter.Add(-authorityRenewal)):
		return nil, nil, errors.New("authority: it has to be renewed")
	}
	return roots, key, nil
}

// newAuthority makes one. Those before it that are still good stay, so that agents that do not have
// it yet can authenticate servers.
func (b Bundle) newAuthority(now time.Time) ([]*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "coelan-controller-ca"}, IsCA: true, BasicConstraintsValid: true,
		MaxPathLenZero: true,
		KeyUsage:       x509.KeyUsageCertSign, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLifetime),
	}
	cert, err := issue(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	roots := []*x509.Certificate{cert}
	before, _ := parseAll(b.Roots) // what cannot be read is of no use
	for _, r := range before {
		if r.IsCA && now.Before(r.NotAfter) {
			roots = append(roots, r)
		}
	}
	return roots, key, nil
}

// leaf is the present server's certificate, if it can still be used.
func (b Bundle) leaf(name string, authority *x509.Certificate, now time.Time) (*x509.Certificate, error) {
	pair, err := tls.X509KeyPair(b.Cert, b.Key)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(pair.Leaf.CheckSignatureFrom(authority), pair.Leaf.VerifyHostname(name)); err != nil {
		return nil, err
	}
	if now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter.Add(-serverRenewal)) {
		return nil, errors.New("it has to be renewed")
	}
	return pair.Leaf, nil
}

func (b *Bundle) newLeaf(name string, authority *x509.Certificate, by *ecdsa.PrivateKey,
	now time.Time,
) (*x509.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotBefore: now.Add(-skew),
		NotAfter: now.Add(serverLifetime),
	}
	cert, err := issue(template, authority, &key.PublicKey, by)
	if err != nil {
		return nil, err
	}
	b.Cert = encode("CERTIFICATE", cert.Raw)
	b.Key, err = encodeKey(key)
	return cert, err
}

// serialBits of RFC 5280's 20 bytes.
const serialBits = 120

func issue(template, parent *x509.Certificate, public *ecdsa.PublicKey,
	by *ecdsa.PrivateKey,
) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return encode("EC PRIVATE KEY", der), err
}

// parseAll reads one certificate or more.
func parseAll(data []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	for data = bytes.TrimSpace(data); len(data) > 0; data = bytes.TrimSpace(data) {
		block, rest := pem.Decode(data)
		if block == nil {
			return nil, errors.New("authority: not PEM")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("authority: %w", err)
		}
		list, data = append(list, cert), rest
	}
	if len(list) == 0 {
		return nil, errors.New("authority: no certificate")
	}
	return list, nil
}
