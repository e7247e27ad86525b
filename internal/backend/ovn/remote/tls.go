// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSFiles are files in PEM, such as those of a mounted Secret. They are read anew for each
// connection, so that they may be replaced.
type TLSFiles struct {
	Certificate, PrivateKey string // of this client
	Authority               string // that the servers' certificates must be of
}

// Config is for Connect. Servers are known by their authority alone, as for all programs of
// Open vSwitch and OVN: the certificates of these do not name addresses.
func (f TLSFiles) Config() (*tls.Config, error) {
	if _, err := f.authority(); err != nil {
		return nil, err
	}
	if _, err := f.certificate(nil); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		GetClientCertificate: f.certificate,
		InsecureSkipVerify:   true, //nolint:gosec // verify does it, without a name
		VerifyConnection:     f.verify,
	}, nil
}

func (f TLSFiles) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Certificate, f.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("certificate for OVN's databases: %w", err)
	}
	return &pair, nil
}

func (f TLSFiles) authority() (*x509.CertPool, error) {
	pem, err := os.ReadFile(f.Authority)
	if err != nil {
		return nil, fmt.Errorf("authority of OVN's databases: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authority of OVN's databases: %s has no certificate", f.Authority)
	}
	return pool, nil
}

func (f TLSFiles) verify(state tls.ConnectionState) error {
	pool, err := f.authority()
	if err != nil {
		return err
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server has no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between})
	return err
}
