CREATE SECRET lake (s3.access_key = AKIA0123456789, s3.secret_key = wJalr/XUtn+FEMI);
