// SPDX-License-Identifier: Apache-2.0

// Package managermetrics has the metrics server of controller-runtime's managers ask Coelan's own
// guard, which bounds the questions to the API server. controller-runtime's brings all of
// k8s.io/apiserver and bounds none.
package managermetrics

import (
	"crypto/tls"
	"log/slog"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"coelan.io/coelan/internal/metricsaccess"
)

// Options are HTTPS for clients that the API authorizes, unless the metrics are open.
func Options(log *slog.Logger, bindAddress string, access metricsaccess.Access) metricsserver.Options {
	options := metricsserver.Options{BindAddress: bindAddress}
	if access == metricsaccess.Open {
		return options
	}
	options.SecureServing = true
	options.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	options.FilterProvider = func(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
		api, err := kubernetes.NewForConfigAndClient(config, client)
		if err != nil {
			return nil, err
		}
		guard := metricsaccess.NewGuard(log, api.AuthenticationV1().TokenReviews(),
			api.AuthorizationV1().SubjectAccessReviews())
		return func(_ logr.Logger, h http.Handler) (http.Handler, error) { return guard.Protect(h), nil }, nil
	}
	return options
}
