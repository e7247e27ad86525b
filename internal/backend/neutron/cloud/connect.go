// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
)

// callTimeout bounds a call, which takes seconds when Neutron has much to do.
const callTimeout = time.Minute

// Access says where Neutron is, and as which user it is asked.
type Access struct {
	// CloudsFile is a file clouds.yaml, and Cloud the name of the cloud in it: keystone says where
	// Neutron is.
	CloudsFile, Cloud string
	// Endpoint is the URL of a Neutron without keystone, and Project the one that resources are
	// of. With CloudsFile they are not used.
	Endpoint, Project string
}

// String says where Neutron is.
func (a Access) String() string {
	if a.CloudsFile != "" {
		return "cloud " + a.Cloud
	}
	return a.Endpoint
}

// Validate says what is missing.
func (a Access) Validate() error {
	switch {
	case a.CloudsFile != "" && a.Endpoint != "":
		return errors.New("either a file clouds.yaml says where Neutron is, or its endpoint is given, not both")
	case a.CloudsFile != "" && a.Cloud == "":
		return fmt.Errorf("%s: which cloud of the file is it? Give its name", a.CloudsFile)
	case a.CloudsFile == "" && a.Endpoint == "":
		return errors.New("a file clouds.yaml is needed, which says where keystone is, and as which user it is asked")
	case a.CloudsFile == "" && a.Project == "":
		return errors.New("without keystone a project is needed, which resources are of")
	}
	return nil
}

// connect returns a client of Neutron, and the id of the project that its user is of.
func (a Access) connect(ctx context.Context) (*gophercloud.ServiceClient, string, error) {
	if a.CloudsFile == "" {
		endpoint := strings.TrimSuffix(a.Endpoint, "/") + "/"
		provider := &gophercloud.ProviderClient{HTTPClient: http.Client{Timeout: callTimeout}}
		api := &gophercloud.ServiceClient{
			ProviderClient: provider, Endpoint: endpoint, ResourceBase: endpoint + "v2.0/",
		}
		return api, a.Project, nil
	}
	provider, where, project, err := a.authenticate(ctx)
	if err == nil {
		err = a.checkRegion(provider, where, neutronService)
	}
	if err != nil {
		return nil, "", err
	}
	// The password, or the application credential, may have been replaced in the file meanwhile.
	provider.ReauthFunc = func(ctx context.Context) error {
		now, _, other, err := a.authenticate(ctx)
		if err == nil && other != project {
			err = fmt.Errorf("cloud %s of %s is of another project by now, %s in place of %s: restart the controller", a.Cloud,
				a.CloudsFile, other, project)
		}
		if err == nil {
			provider.CopyTokenFrom(now)
		}
		return err
	}
	api, err := openstack.NewNetworkV2(provider, where)
	if err != nil {
		return nil, "", fmt.Errorf("keystone at %s names no Neutron: %w", provider.IdentityEndpoint, err)
	}
	return api, project, nil
}

// authenticate reads the file and gets a token from keystone. It returns where that looks for
// Neutron, and the id of the user's project.
func (a Access) authenticate(ctx context.Context) (
	provider *gophercloud.ProviderClient, where gophercloud.EndpointOpts, project string, err error,
) {
	auth, where, tls, err := clouds.Parse(clouds.WithLocations(a.CloudsFile), clouds.WithCloudName(a.Cloud))
	if err != nil {
		return nil, where, "", fmt.Errorf("cloud %s of %s: %w", a.Cloud, a.CloudsFile, err)
	}
	provider, err = config.NewProviderClient(ctx, auth,
		config.WithHTTPClient(http.Client{Timeout: callTimeout}), config.WithTLSConfig(tls))
	if err == nil {
		project, err = projectOf(provider)
	}
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return nil, where, "", fmt.Errorf("keystone at %s: %w: its authority is to be the cacert of cloud %s in %s",
			auth.IdentityEndpoint, err, a.Cloud, a.CloudsFile)
	case err != nil:
		return nil, where, "", fmt.Errorf("keystone at %s: %w", auth.IdentityEndpoint, err)
	}
	return provider, where, project, nil
}

// projectOf is the project that a token is for.
func projectOf(provider *gophercloud.ProviderClient) (string, error) {
	token, ok := provider.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return "", errors.New("the token is not of version 3")
	}
	project, err := token.ExtractProject()
	if err != nil {
		return "", err
	}
	if project == nil {
		return "", errors.New("the token is for no project: name one in the file")
	}
	return project.ID, nil
}
