// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The ConfigMap in which the API server publishes the authorities of clients' certificates.
const (
	authoritiesNamespace = "kube-system"
	authoritiesName      = "extension-apiserver-authentication"
	authoritiesKey       = "client-ca-file"
	authoritiesFor       = time.Minute
)

// ClusterAuthorities are those that the API server accepts certificates of clients from. They are
// read when they are needed, and again after a minute.
func ClusterAuthorities(api kubernetes.Interface) func(context.Context) (*x509.CertPool, error) {
	var mu sync.Mutex
	var pool *x509.CertPool
	var read time.Time
	return func(ctx context.Context) (*x509.CertPool, error) {
		mu.Lock()
		defer mu.Unlock()
		if pool != nil && time.Since(read) < authoritiesFor {
			return pool, nil
		}
		c, err := api.CoreV1().ConfigMaps(authoritiesNamespace).Get(ctx, authoritiesName, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("authorities of clients: %w", err)
		}
		fresh := x509.NewCertPool()
		fresh.AppendCertsFromPEM([]byte(c.Data[authoritiesKey]))
		pool, read = fresh, time.Now()
		return pool, nil
	}
}
