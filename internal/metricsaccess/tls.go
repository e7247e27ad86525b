// SPDX-License-Identifier: Apache-2.0

package metricsaccess

import (
	"crypto/tls"
	"fmt"
	"net"

	"k8s.io/client-go/util/cert"
)

// Secure serves TLS on a listener with a self-signed certificate: clients cannot authenticate the
// server by it, but the tokens that they send are encrypted.
func Secure(l net.Listener) (net.Listener, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("coelan", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("certificate of the metrics: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the metrics: %w", err)
	}
	return tls.NewListener(l, &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}), nil
}
